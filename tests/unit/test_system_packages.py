"""V-04: what of packages of the image's system can be said without an image: names, the record, its summary."""

import types

import pytest
from easybuild.easyblocks.generic.container import layer as layers
from easybuild.easyblocks.generic.container.layer import COMPRESSION, Layer
from easybuild.easyblocks.generic.container.lockfile import LayerRecord, Record
from easybuild.easyblocks.generic.container.parameters import check_parameters
from easybuild.easyblocks.generic.container.spec import ContainerSpec
from easybuild.tools.build_log import EasyBuildError
from ebsif.catalogue.records import Record as CatalogueRecord
from ebsif.catalogue.records import system_of
from pydantic import ValidationError

GIT = LayerRecord(requested=["git", "libssl3", "vim", "mail-agent"], packages=["git==1:2.39-1", "git-man==1:2.39-1"],
                  upgraded={"libssl3": ["3.0.1", "3.0.2"]}, sha256="0" * 64, debs={"git": "1" * 64})


def spec(value):
    """Return the specification of a container with a value of the parameter."""
    return ContainerSpec({"name": "x", "version": "1", "sources": ["x.sif"], "system_packages": value})


@pytest.mark.parametrize("value", [
    ["x;rm"], ["--option"], ["-y"], ["../x.deb"], ["vim-"], ["Vim"], ["a b"], ["vim=$(id)"], ["v\n"], ["./x.deb"],
    {"packages": ["vim"], "allow_upgrade": ["-"]}, {"packages": ["vim"], "allow_upgrade": ["libc6=1"]},
    ["vim/testing"], ["task^"], ["vim=1 2"]])
def test_what_is_no_name(value):
    """V-04: values are data: options, paths, patterns and what apt understands besides names are refused."""
    with pytest.raises(EasyBuildError, match="'system_packages': not a name of a package: '"):
        check_parameters(spec(value))


@pytest.mark.parametrize("value", ["vim", {"package": ["vim"]}, [1], {"packages": "vim"}, None, 3])
def test_what_has_another_type(value):
    """V-04: the message shows both forms."""
    with pytest.raises(EasyBuildError, match=r"should be a list of names, or \{'packages': \[\.\.\.\], 'allow_upgr"):
        check_parameters(spec(value))


@pytest.mark.parametrize("value", [
    [], ["vim"], ["g++", "libstdc++6=12.2.0-14+deb12u1", "python3.11", "0ad", "vim=2:9~rc1"],
    {"packages": ["modern"], "allow_upgrade": ["libssl3"]}])
def test_what_is_a_name(value):
    """V-04: names as Debian's policy allows them, with versions that have epochs and tildes."""
    check_parameters(spec(value))
    assert bool(spec(value).system) == bool(value)


def test_the_catalogue_has_the_same_rule():
    """V-04: the field of a record takes both forms of the parameter, and refuses what the easyblock refuses."""
    record = CatalogueRecord(family="x", version="1", system_packages=["vim=2:9"])
    assert system_of(record.system_packages).parameter == ["vim=2:9"]
    both = {"packages": ["modern"], "allow_upgrade": ["libssl3"]}
    assert system_of(CatalogueRecord(family="x", version="1", system_packages=both).system_packages).parameter == both
    with pytest.raises(ValidationError, match="not a name of a package of the image's distribution"):
        CatalogueRecord(family="x", version="1", system_packages=["x;rm"])


def test_the_record_tells_what_was_added():
    """V-04: a summary names what was asked for; in the lists of packages, what was added has a place of its own."""
    assert GIT.summary == (
        "git 1:2.39-1, libssl3 3.0.2, vim (in the image), mail-agent (in the image) (and 1 that they need)")
    record = Record(system_layer=GIT, system_packages={"deb": ["bash==5", "git-man==1:2.39-1", "git==1:2.39-1",
                                                               "libssl3==3.0.2"]})
    places = {package.name: package.place for package in record.packages}
    assert places == {"bash": "image", "git": "system-packages", "git-man": "system-packages",
                      "libssl3": "system-packages"}
    again = Record.of({"image": {"file": "x"}, "system_layer": vars(GIT)})
    assert again.system_layer.summary == GIT.summary


def test_compression_that_the_runtime_lacks(tmp_path, monkeypatch):
    """V-04: a layer that the runtime can't mount with zstd is packed with gzip, like user software."""
    packed = []
    monkeypatch.setattr(layers, "run_program", lambda command, **_: packed.append(command) or types.SimpleNamespace(
        exit_code=0))
    monkeypatch.setattr(layers, "Container", lambda *_: types.SimpleNamespace(
        run=lambda *_, **__: types.SimpleNamespace(exit_code=255)))
    (tmp_path / "root").mkdir()
    container = types.SimpleNamespace(runtime=None, image="x.sif")
    Layer(container, str(tmp_path / "root"), str(tmp_path)).pack("x.squashfs")
    assert [command[-len(options):] for command, options in zip(packed, COMPRESSION)] == list(COMPRESSION)
