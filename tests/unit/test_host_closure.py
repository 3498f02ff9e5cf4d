"""K-01, K-03: libraries and programs of the host, with what its loader finds; the files are made with gcc."""

import re
import subprocess
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.host.elf import Elf, NotElfError
from easybuild.easyblocks.generic.container.host.libraries import HostLibraries, ImageLibrary
from easybuild.easyblocks.generic.container.host.loader import Loader
from easybuild.easyblocks.generic.container.host.programs import HostPrograms
from support import write_program

JSON = {"code": "int json(void) {return 5;}", "versions": "JSON_0.14 {global: json;};"}


@pytest.fixture(name="make")
def fixture_make(tmp_path):
    """Return a function that makes a library, or a program without a name of a library."""

    def make(name, *needed, folder="lib", options=(), code="", versions=""):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        kind = ["-shared", "-fPIC", f"-Wl,-soname,{name}"] if ".so" in name else []
        (place / "code.c").write_text(code or ("" if kind else "int main(void) {return 0;}\n"))
        if versions:
            (place / "versions").write_text(versions)
            options = [*options, f"-Wl,--version-script={place}/versions"]
        command = ["gcc", *kind, "-o", place / name, place / "code.c", "-Wl,--no-as-needed", *needed]
        subprocess.run([*command, "-Wl,--allow-shlib-undefined", *options], check=True)
        return place / name

    return make


def test_the_binds_have_loader_programs_and_libraries(make):
    """K-03: each under a name that doesn't depend on the version of the file."""
    library = make("libone.so.77")
    # of software outside of /usr
    deep = make("libdeep.so.77", folder="deep")
    program = make("prog", library, deep, options=[f"-Wl,-rpath,{library.parent}:$ORIGIN/../deep"])
    found = HostPrograms(Loader(), [str(program)])
    assert found.problems == []
    assert f"{program}:/host-programs/bin/prog:ro" in found.binds
    assert f"{library}:/host-programs/lib/libone.so.77:ro" in found.binds
    assert f"{deep}:/host-programs/lib/libdeep.so.77:ro" in found.binds
    assert f"{Elf.read(str(program)).interpreter}:/host-programs/ld.so:ro" in found.binds
    assert found.record().builds[str(library)] == Elf.read(str(library)).build_id() != ""


def test_missing_parts_are_named_together(make):
    """K-03: all that is missing, with the chain, so that a person mends it at once."""
    library = make("libgone.so.77")
    program = make("prog", library)
    library.unlink()
    script = write_program(program.with_name("script"), "#!/bin/sh\n")
    wanted = [str(program), str(script), "no-such-program"]
    problems = HostPrograms(Loader(), wanted, [str(program.parent / "none")]).problems
    library, script, program, plugins = (re.sub(r"/\S+/", "", problem) for problem in problems)
    assert "bind it" in script
    assert library == "prog needs libgone.so.77, which this machine doesn't have (prog)"
    assert program.startswith("no-such-program is not on this machine, or not on PATH: write its full path, or '?'")
    assert plugins == "there are no plugins in none: correct 'plugins', or write '?' before it if they may be missing"


def test_plugins_that_the_host_can_not_load_are_left_out(make):
    """K-03: what the others need is bound; a plugin that lacks something doesn't work outside, either."""
    library, gone = make("libone.so.77", folder="a"), make("libgone.so.77", folder="b")
    make("good.so", library, folder="plugins", options=[f"-Wl,-rpath,{library.parent}"])
    plugin = make("bad.so", gone, folder="plugins")
    gone.unlink()
    found = HostPrograms(Loader(), [], [str(plugin.parent)])
    assert (found.problems, found.libraries["libone.so.77"]) == ([], str(library))
    assert found.left_out == ["bad.so needs libgone.so.77, which this machine doesn't have (bad.so)"]
    assert f"{plugin.parent}:{plugin.parent}:ro" in found.binds


@pytest.mark.parametrize("length", [0, 10, 64, 70, 300, 2000, 5000])
def test_damaged_libraries_are_none(make, length):
    """K-01, K-03: one that is being replaced, or what an image has under the name of a library: no traceback."""
    path = make("libone.so.77", **JSON)
    data = path.read_bytes()
    assert ImageLibrary.of("/x", data)
    assert ImageLibrary.of("/x", data[:length]) is None
    path.write_bytes(data[:length])
    with pytest.raises(NotElfError):
        Elf.read(str(path))


def test_what_may_be_missing(make, tmp_path):
    """K-03: the mark of optional binds, in each of the lists; a file that has to be there is named."""
    program = str(make("prog"))
    found = HostPrograms(Loader(), [program, "?no-such-program"], ["?/none"], ["?/none/a", str(tmp_path), "/none/b"])
    missing = "/none/b doesn't exist on this machine: correct 'files', or write '?' before it if it may be missing"
    assert found.problems == [missing]
    assert (list(found.programs), found.plugin_folders) == (["prog"], [])
    # where it is missing now, it is bound as soon as it is there
    assert found.binds[-2:] == [str(tmp_path), "/none/a"]


@pytest.mark.parametrize(
    ("text", "user"), [("", "root"), ("SlurmUser=slurm(64030)\n", "slurm"), ("#SlurmUser=a\n", "root")]
)
def test_the_account_of_slurm(tmp_path, monkeypatch, text, user):
    """K-03: as in slurm.conf, which may be in a directory that is bound; Slurm's default is root."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/slurm.conf").write_text(text)
    assert HostPrograms(Loader(), [], [], [str(tmp_path)]).slurm_user() == (user, f"{tmp_path}/conf/slurm.conf")
    assert HostPrograms(Loader(), []).slurm_user() == ("", "")


# --- libraries for the image's programs


def decide(root, *image, libc="/lib/x86_64-linux-gnu/libc.so.6", search_path=(), plugins=()):
    """Return what an image with some libraries (paths) gets of a root, why, what it has itself, and what is wrong."""
    found = HostLibraries([str(root)], list(map(str, plugins)), list(map(str, search_path)))
    there = {path.name: ImageLibrary.of(str(path), path.read_bytes()) for path in map(Path, (*image, libc))}
    decision = found.decide(there)
    return decision.bound, decision.served, found.problems + decision.problems


@pytest.fixture(name="chain")
def fixture_chain(make):
    """A library, and the one that it needs in a version."""
    json = make("libjson.so.77", **JSON)
    return make("libcxi.so.77", json, code="int json(void); int cxi(void) {return json();}"), json


def test_what_a_library_needs_comes_along(chain):
    """K-01, S001-13: unless the image has it with all versions that are needed; file names aren't compared."""
    cxi, json = chain
    for image, bound, served in (
        ([], {"libcxi.so.77": "named", "libjson.so.77": "the image lacks it"}, {}),
        ([json], {"libcxi.so.77": "named"}, {"libjson.so.77": str(json)}),
    ):
        assert decide(cxi, *image, search_path=[cxi.parent]) == (bound, served, [])


def test_what_the_host_lacks_is_named(chain):
    """K-01: with the library that needs it; so are roots."""
    cxi, json = chain
    json.unlink()
    assert decide(cxi)[2] == ["libcxi.so.77 needs libjson.so.77, which this machine doesn't have (libcxi.so.77)"]
    assert "libnone.so.1 is not on this machine" in decide("libnone.so.1")[2][0]
    assert decide("?libnone.so.1") == ({}, {}, [])


def test_an_older_library_of_the_image_is_replaced(chain, make):
    """K-01, S001-13: by versions, else by symbols; what the image's has more than the host's stops the installation."""
    cxi, _ = chain
    old = make("libjson.so.77", folder="old", code="int json(void) {return 4;}", versions="JSON_0.13 {global: json;};")
    bound, _, problems = decide(cxi, old, search_path=[cxi.parent])
    assert bound["libjson.so.77"] == "the image's is older: libcxi.so.77 needs JSON_0.14"
    assert f"would replace {old} of the image, which has more (1, such as JSON_0.13)" in problems[0]
    one = make("libone.so.77", code="int a(void) {return 1;} int b(void) {return 2;}")
    user = make("libuser.so.77", one, code="int b(void); int c(void) {return b();}")
    old = make("libone.so.77", folder="old", code="int a(void) {return 1;}")
    bound, _, problems = decide(user, old, search_path=[one.parent])
    assert (bound["libone.so.77"], problems) == ("the image's is older: libuser.so.77 needs b", [])


def test_a_root_that_has_less_than_the_image(make):
    """K-01: the host's libexpat breaks the image's Python: an error, unless that is meant."""
    host = make("libexpat.so.77", code="int a(void) {return 1;}")
    image = make("libexpat.so.77", folder="image", code="int a(void) {return 1;} int b(void) {return 1;}")
    assert "Write 'replace' after it if that is meant" in decide(host, image)[2][0]
    assert decide(f"{host} replace", image) == ({"libexpat.so.77": "named"}, {}, [])
    bound, _, problems = decide(f"{host} as libother.so.1", image)
    assert (bound, problems) == (dict.fromkeys(("libother.so.1", "libexpat.so.77"), "named"), [])


def test_the_image_needs_a_glibc_that_is_new_enough(make):
    """K-01: the library, the version that it needs and the version that the image has are named."""
    root = make("libnew.so.77", code='#include <stdio.h>\nint a(void) {return printf("%d", 1);}')
    assert decide(root) == ({"libnew.so.77": "named"}, {}, [])
    old = make("libc.so.6", folder="libc", code="int a(void) {return 1;}", versions="GLIBC_2.1 {global: a;};")
    (problem,) = decide(root, libc=old)[2]
    assert problem.startswith(f"{root} needs GLIBC_2.2.5, and the image has up to GLIBC_2.1: use a newer image, or")
    assert "the image has no glibc" in decide(root, libc=root)[2][0]


def test_the_newest_of_a_pattern_and_its_plugins(make, tmp_path):
    """K-01: by numbers; plugins stay where they are, and what they need comes along."""
    for version in ("8.1.9", "8.1.30"):
        make("libmpi.so.77", folder=version)
        make("libfabric.so.77", folder=f"fabric-{version}")
    one = make("libone.so.77", folder="more")
    plugin = make("provider.so", one, folder="plugins", options=[f"-Wl,-rpath,{one.parent}"])
    # directories, too
    found = HostLibraries(["libfabric.so.77"], [], [f"{tmp_path}/fabric-*", "/none"])
    assert found.libraries["libfabric.so.77"] == f"{tmp_path}/fabric-8.1.30/libfabric.so.77"
    found = HostLibraries([f"{tmp_path}/8.*/libmpi.so.77"], [str(plugin.parent)])
    assert found.libraries["libmpi.so.77"] == f"{tmp_path}/8.1.30/libmpi.so.77"
    record = found.record(found.decide({"libc.so.6": ImageLibrary("/libc.so.6", {"GLIBC_2.2.5"}, set())}))
    newest, needed, plugins = record.binds
    assert newest == f"{tmp_path}/8.1.30/libmpi.so.77:/host-libraries/libmpi.so.77:ro"
    assert (needed, plugins) == (f"{one}:/host-libraries/libone.so.77:ro", f"{plugin.parent}:{plugin.parent}:ro")
    assert set(record.builds) == set(record.libraries.values())
