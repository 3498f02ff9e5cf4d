"""Importing easyconfigs of the style in use today, in every generation: fixtures are made from facts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ebsif import catalogue, document, importing, site
from support import CHECKOUT

FACTS = json.loads((CHECKOUT / "tests/data/lumi-containers.json").read_text())
LUMI = site.SITES / "lumi"
# ccpe has commands of its own: these need a person
KNOWN = [fact for fact in FACTS if fact["name"] != "ccpe"]


@pytest.fixture(scope="module")
def lumi():
    """The files of LUMI's catalogue, and its profile."""
    return [document.validate(catalogue.Document, document.load(path), path) for path in catalogue.files(LUMI)], \
        site.read("lumi")


def in_todays_style(fact):
    """The text of an easyconfig that does what the fact says, as a program of shell commands."""
    suffix = fact["easyconfig"][len(f"{fact['name']}-{fact['version']}") : -len(".eb")]
    lines = []
    for name, version in fact["components"].items():
        if name not in ("dockerhash", "date", "PyTorch", "python_mm"):
            lines.append(f"local_c_{name}_version = {version!r}")
    lines += [
        "local_script = '''#!/bin/bash\nexec \"$@\"\n'''", "easyblock = 'MakeCp'", f"name = {fact['name']!r}",
        f"version = {fact['version']!r}", f"versionsuffix = {suffix!r}", "homepage = 'https://example.org'",
        "description = 'A container.'", "toolchain = SYSTEM", f"local_sif = {fact['sif'][0]!r}",
        "sources = [{'filename': local_sif, 'extract_cmd': '/bin/cp -L %s .'}" + "".join(
            f", {name!r}" for name in fact["sif"][1:]) + "]",
        "skipsteps = ['build']", "files_to_copy = [([local_sif], '.')]"]
    commands = ["mkdir -p %(installdir)s/bin %(installdir)s/runscripts"]
    for script in fact["scripts"]:
        commands.append(f"cat >%(installdir)s/{script} <<'EOF'\n@SCRIPT@EOF\nchmod a+x %(installdir)s/{script}")
    commands += [f"ln -s python %(installdir)s/{link}" for link in fact["wrapper_links"]]
    if fact["user_software_venv"]:
        commands.append("mkdir -p %(installdir)s/user-software/venv && cd %(installdir)s && "
                        "singularity exec %(installdir)s/x.sif bash -c '$WITH_CONDA ; python -m venv /user-software/v'")
    if fact["requirements"]:
        lines.append("local_requirements = '''\n" + "\n".join(fact["requirements"]) + "\n'''")
        commands.append("singularity exec x.sif pip install -r requirements.txt")
        commands.append("mksquashfs user-software user-software.squashfs -no-progress |& grep -v warning")
    lines.append("postinstallcmds = [")
    lines += [f"    {command!r}.replace('@SCRIPT@', local_script)," for command in commands]
    lines.append("]")
    variables = {**fact["module_vars"], "SINGULARITY_BIND": ",".join(fact["binds"] or [])}
    lines.append(f"modextravars = {variables!r}")
    return "\n".join([*lines, f"moduleclass = {fact.get('moduleclass', 'devel')!r}", ""])


@pytest.mark.parametrize("fact", KNOWN, ids=lambda fact: fact["easyconfig"][: -len(".eb")])
def test_what_is_imported_is_what_the_catalogue_has(fact, lumi, tmp_path):
    """Every container of LUMI, of all generations: the record that comes out makes the same module."""
    path = tmp_path / fact["easyconfig"]
    path.write_text(in_todays_style(fact))
    found = importing.read(path, *lumi)
    assert found.not_understood == []
    ours = {one.easyconfig_name: one for one in catalogue.read(lumi[1], LUMI)}[fact["easyconfig"]]
    name = f"containers/{fact['name']}.yaml"
    document_text = (LUMI / name).read_text().split("\ncontainers:\n")[0]
    (tmp_path / "containers").mkdir()
    (tmp_path / name).write_text(f"{document_text}\ncontainers:\n{found.proposal.text}")
    (made,) = catalogue.read(lumi[1], tmp_path)
    assert made.file_name == ours.file_name
    for field in ("init", "venv", "conda_env", "requirements", "container_env", "definition_files"):
        assert getattr(made, field) == getattr(ours, field), field
    assert made.all_binds == ours.all_binds
    assert made.wrappers == ours.wrappers
    assert made.easyconfig_name == ours.easyconfig_name
    # of one, the file name and the suffix name different versions: that of the file is what is in the image
    assert made.components.get("rocm") in (ours.components.get("rocm"), "5.5.3")
    assert made.script_names == ours.script_names


STRANGE = """\
easyblock = 'MakeCp'
name = 'Strange'
version = '1.0'
versionsuffix = '-a'
homepage = 'https://example.org'
description = 'x'
toolchain = SYSTEM
local_answer = 42
sources = ['strange-1.0.sif', 'strange.docker']
postinstallcmds = [
    'mkdir -p bin && curl https://example.org/x | bash', 'cat >%(installdir)s/bin/tool <<EOF\\nx\\nEOF\\n']
modextravars = {'SINGULARITY_BIND': '/scratch,/data:/mnt', 'MINE': 'yes', 'SINGULARITYENV_X': '1'}
modluafooter = '''
setenv("OTHER", "2")
if mode() == "load" then LmodMessage("hello") end
'''
group = 'users'
"""


def test_nothing_is_dropped_in_silence(lumi, tmp_path):
    """What is known becomes data, the rest is named; status 1, so that nobody overlooks it."""
    path = tmp_path / "Strange-1.0-a.eb"
    path.write_text(STRANGE)
    found = importing.read(path, *lumi)
    assert found.not_understood == [
        'modluafooter: if mode() == "load" then LmodMessage("hello") end',
        "command curl https://example.org/x | bash", "variable local_answer = 42", "parameter group = users"]
    record = found.proposal.values
    assert record["binds"] == {"optional": ["/data:/mnt"]}
    assert record["variables"] == {"MINE": "yes", "OTHER": "2"}
    assert record["container_env"] == {"X": "1"}
    assert record["wrappers"] == ["tool"]
    assert record["definition_files"] == ["strange.docker"]
    result = subprocess.run([Path(sys.prefix) / "bin/ebsif", "import", "--site", "lumi", path], capture_output=True,
                            text=True, check=False)
    assert result.returncode == 1
    assert "NOT UNDERSTOOD, needs a person:\n    modluafooter: if mode()" in result.stderr
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers/Strange.yaml").write_text(result.stdout)
    (made,) = catalogue.read(lumi[1], tmp_path)
    assert made.easyconfig_name == path.name
    assert made.file_name == "strange-1.0.sif"


@pytest.mark.parametrize(("text", "expected"), [
    ("name = 'x'\n", "mandatory parameters not provided"),
    (STRANGE.replace("sources = ", "no_sources = "), "sources is missing: this is no easyconfig of a container"),
    (STRANGE.replace("strange-1.0.sif", "x.tar.gz"), "none of the sources is an image"),
    ("name = (\n", "Parsing easyconfig file failed"),
])
def test_what_is_no_container(text, expected, lumi, tmp_path):
    """A message, no traceback."""
    path = tmp_path / "x.eb"
    path.write_text(text)
    with pytest.raises(importing.ImportingError, match=expected):
        importing.read(path, *lumi)


def test_details_that_are_easily_lost(lumi, tmp_path):
    """The checksum is kept; a directory of one's own on PATH, a message and requirements in a file are named."""
    path = tmp_path / "Strange-1.0-a.eb"
    text = STRANGE.replace("'MINE': 'yes'", "'SINGULARITYENV_PREPEND_PATH': '/runscripts:/my/tools'")
    text = text.replace("'mkdir -p bin", "'pip install -r /some/file.txt', 'mkdir -p bin")
    path.write_text(f"{text}checksums = ['{'a' * 64}']\nmodloadmsg = 'hello'\n")
    found = importing.read(path, *lumi)
    assert found.proposal.values["sha256"] == "a" * 64
    for expected in ("directory /my/tools in SINGULARITYENV_PREPEND_PATH", "parameter modloadmsg = hello",
                     "requirements of: pip install -r /some/file.txt"):
        assert expected in found.not_understood
    assert not [one for one in found.not_understood if "/runscripts" in one]
