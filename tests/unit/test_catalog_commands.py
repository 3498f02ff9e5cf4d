"""Commands for catalogs: render, check, list, show; catalogs and settings of a site's own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ebsif.catalog.site import SITES
from ebsif.eb.framework import ModulePlace
from ebsif.eb.running import Result
from ebsif.environments import installing, writing
from ebsif.environments.request import Request
from ebsif_command import run_ebsif
from support import CHECKOUT

EBSIF = Path(sys.prefix) / "bin" / "ebsif"

SITE = "name: mine\ndescription: a machine of ours\ngpu: cuda\n"
CONTAINERS = """\
name: JAX
families:
  jax: {homepage: https://docs.jax.dev/, file: "jax-{version}.sif", suffix: "-{date}", init: image, python: 3.12}
containers:
  - {family: jax, version: 0.5.0, date: 20250101, components: {cuda: 12.4}}
  - {family: jax, version: 0.10.0, date: 20250601, components: {cuda: 12.6}}
  - {family: jax, version: 0.4.0, date: 20240101, archived: true}
"""
WITH_VENV = CONTAINERS.replace("image, python", "image, venv: true, python")


@pytest.fixture
def place(tmp_path):
    """A directory with a catalog of a site's own."""
    folder = tmp_path / "sites/mine/containers"
    folder.mkdir(parents=True)
    (folder.parent / "site.yaml").write_text(SITE)
    (folder / "JAX.yaml").write_text(CONTAINERS)
    return tmp_path


def run(place, *arguments, status=0, **environment):
    """Run the command in a directory without the caller's settings; return the CompletedProcess."""
    result = run_ebsif(arguments, place, {"PATH": "/usr/bin:/bin", "HOME": place, **environment})
    assert result.returncode == status, result.stdout + result.stderr
    return result


WRONG = "name: Wrong\ncontainers:\n  - {family: none, version: 1}\n"
MINE = ("--catalog", "sites", "--site", "mine")


def test_render_says_what_it_does(place):
    """Files are written where EasyBuild looks for them; a second run has nothing to do and says so."""
    result = run(place, "render", *MINE)
    assert "new      easyconfigs/j/JAX/JAX-0.10.0-20250601.eb" in result.stdout
    assert "easyconfigs of the site mine: 3 new, 0 changed, 0 up to date" in result.stderr
    path = place / "easyconfigs/j/JAX/JAX-0.10.0-20250601.eb"
    before = path.stat().st_mtime_ns
    assert run(place, "render", *MINE).stderr == "easyconfigs of the site mine: 0 new, 0 changed, 3 up to date\n"
    # empty: detected and restored
    path.write_text("")
    assert "changed  easyconfigs/j/JAX/JAX-0.10.0" in run(place, "render", *MINE).stdout
    assert path.stat().st_mtime_ns > before
    (place / "sites/mine/containers/JAX.yaml").write_text(CONTAINERS.replace("12.6", "12.8"))
    assert "0 new, 1 changed, 2 up to date" in run(place, "render", *MINE).stderr
    # the easyconfig of a removed record stays
    (place / "sites/mine/containers/JAX.yaml").write_text("".join(CONTAINERS.splitlines(keepends=True)[:-1]))
    assert "JAX-0.4.0-20240101.eb is no longer in the catalog" in run(place, "render", *MINE).stderr
    assert (place / "easyconfigs/__archive__/j/JAX/JAX-0.4.0-20240101.eb").exists()


def test_one_bad_record_does_not_stop_the_others(place):
    """Records that can't be rendered are reported with file and line before anything is written; status 1."""
    folder = place / "sites/mine/containers"
    (folder / "JAX.yaml").write_text(
        CONTAINERS + "  - {family: jax, version: 1.0}\n  - {family: jaxx, version: 1.1, date: 20250101}\n"
        "  - {family: jax, version: 0.5.0, date: 20250101, file: other.sif}\n"
    )
    (folder / "Bad.yaml").write_text("name: Bad\nfamilies: {x}\n")
    result = run(place, "render", *MINE, status=1)
    assert (place / "easyconfigs/j/JAX/JAX-0.10.0-20250601.eb").is_file()
    assert (place / "easyconfigs/__archive__/j/JAX/JAX-0.4.0-20240101.eb").is_file()
    assert not (place / "easyconfigs/j/JAX/JAX-0.5.0-20250101.eb").exists()
    problems = result.stderr.splitlines()
    where = "ebsif: sites/mine/containers/JAX.yaml"
    assert any("containers/Bad.yaml:2: families.x: " in line for line in problems)
    assert any(line.startswith(where) and "unknown family 'jaxx'" in line for line in problems)
    assert any(line.startswith(f"{where}:8: JAX 1.0: there is no value for {{date}}") for line in problems)
    module = "JAX/0.5.0-20250101 is also the module of sites/mine/containers/JAX.yaml"
    assert f"{where}:5: {module}:10: give one of them a 'label'" in problems
    assert f"{where}:10: {module}:5: give one of them a 'label'" in problems
    assert "2 new, 0 changed, 0 up to date; 6 problems" in result.stderr
    # the failure is not remembered as done, and the other records are still shown
    assert "0 new, 0 changed, 2 up to date; 6 problems" in run(place, "render", *MINE, status=1).stderr
    assert run(place, "render", *MINE, "--stdout", status=1).stdout.count("easyblock = ") == 2
    # a single name is checked against all records
    assert "is also the module of" in run(place, "render", *MINE, "JAX/0.5.0", status=1).stderr


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("", "neither the record nor its family has a file: add the name of the image"),
        ("file: 'rel-{release}.sif'", "there is no value for {release} in 'rel-{release}.sif'"),
        ("file: rel.sif, images: {directories: [{path: '/apps/{x}'}]}", "there is no value for {x} in '/apps/{x}'"),
    ],
)
def test_an_image_without_a_name_stops_nothing_else(place, change, problem):
    """Whatever makes the path of an image impossible is reported with its line; the other records go on."""
    (place / "sites/mine/site.yaml").write_text(f"{SITE}images: {{directories: [{{path: /apps}}]}}\n")
    (place / "sites/mine/containers/Rel.yaml").write_text(
        f"name: Rel\nfamilies:\n  rel: {{homepage: https://example.org/, init: image{change and f', {change}'}}}\n"
        "containers:\n  - {family: rel, version: 1.0}\n"
    )
    line = f"sites/mine/containers/Rel.yaml:5: Rel 1.0: {problem}"
    result = run(place, "render", *MINE, status=1)
    assert f"ebsif: {line}" in result.stderr and "3 new" in result.stderr
    assert line.replace(": Rel", ": error: Rel") in run(place, "check", *MINE, status=1).stdout
    for command in (["list", "--json"], ["diff", "JAX/0.5.0", "JAX/0.10.0"], ["show", "JAX/0.5.0"]):
        result = run(place, *command, *MINE, status=int(command[0] == "diff"))
        assert line in result.stderr and "jax" in result.stdout.lower()
    for command in (["scan"], ["add", "x.sif"], ["docs", "-o", "pages"]):
        assert f"ebsif: {line}" in run(place, *command, *MINE, status=3).stderr


def test_render_keeps_what_a_person_has_written(place):
    """C-04: a hand-written easyconfig, or one edited after it was rendered, is only replaced with --overwrite."""
    run(place, "render", *MINE)
    edited = place / "easyconfigs/j/JAX/JAX-0.10.0-20250601.eb"
    written = place / "easyconfigs/j/JAX/JAX-0.5.0-20250101.eb"
    rendered = edited.read_text()
    edited.write_text(rendered + "# mine\n")
    written.write_text("easyblock = 'ContainerVenv'\n")
    for more in ([], ["--dry-run"]):
        result = run(place, "render", *MINE, *more, status=1)
        assert f"{edited.relative_to(place)} was written or edited by a person" in result.stderr
        assert str(written.relative_to(place)) in result.stderr and "--overwrite" in result.stderr
        assert "0 new, 0 changed, 1 up to date, 2 kept" in result.stderr
    assert edited.read_text().endswith("# mine\n") and written.read_text() == "easyblock = 'ContainerVenv'\n"
    # the others are rendered
    (place / "sites/mine/containers/JAX.yaml").write_text(CONTAINERS.replace("date: 20240101", "date: 20240102"))
    assert "1 new, 0 changed, 0 up to date, 2 kept" in run(place, "render", *MINE, status=1).stderr
    assert "0 new, 2 changed, 1 up to date" in run(place, "render", *MINE, "--overwrite").stderr
    assert edited.read_text() == rendered
    # rendered elsewhere, as its first line says, and an earlier version of it
    (place / "easyconfigs/.ebsif-render").unlink()
    edited.write_text(rendered.replace("12.6", "12.7"))
    assert "0 new, 1 changed, 2 up to date" in run(place, "render", *MINE).stderr


def test_render_moves_archived_easyconfigs(place):
    """The easyconfig of an archived record is below __archive__, and comes back; --except leaves it alone."""
    records = place / "sites/mine/containers/JAX.yaml"
    folders = (place / "easyconfigs", place / "easyconfigs/__archive__")
    current, archived = (folder / "j/JAX/JAX-0.5.0-20250101.eb" for folder in folders)
    run(place, "render", *MINE)
    text = current.read_text()
    records.write_text(CONTAINERS.replace("date: 20250101", "date: 20250101, archived: true"))
    said = run(place, "check", *MINE, "--quick", status=1).stdout
    assert "its place is easyconfigs/__archive__/j/JAX now: run ebsif render" in said
    assert "0 new, 0 changed, 2 up to date" in run(place, "render", *MINE, "--except", "0.5.0").stderr
    assert current.read_text() == text
    # a person's changes aren't moved
    current.write_text(text + "# mine\n")
    said = run(place, "render", *MINE, status=1).stderr
    assert f"{current.relative_to(place)} was written or edited by a person, and is not replaced" in said
    assert not archived.exists()
    current.write_text(text)
    said = run(place, "render", *MINE)
    assert "moved    easyconfigs/__archive__/j/JAX/JAX-0.5.0-20250101.eb" in said.stdout
    assert "0 new, 1 moved, 0 changed, 2 up to date" in said.stderr
    assert not current.exists() and "hidden = True" in archived.read_text()
    records.write_text(CONTAINERS)
    run(place, "render", *MINE)
    assert not archived.exists() and current.read_text() == text
    assert "0 new, 0 changed, 3 up to date" in run(place, "render", *MINE).stderr


@pytest.mark.parametrize("link", ["j/JAX/JAX-0.4.0-20240101.eb", "__archive__"])
def test_links_to_archived_easyconfigs(place, link):
    """A link by which eb finds an archived easyconfig stays; what it leads to is not removed."""
    archived = place / "easyconfigs/__archive__/j/JAX/JAX-0.4.0-20240101.eb"
    link = place / "easyconfigs" / link
    if link.name == "__archive__":
        link.parent.mkdir()
        link.symlink_to(".")
    else:
        run(place, "render", *MINE)
        link.symlink_to(archived)
    for said in (run(place, "render", *MINE), run(place, "render", *MINE)):
        assert "moved" not in said.stderr and "no longer in the catalog" not in said.stderr
        assert archived.is_file() and link.is_symlink()


def test_sites_do_not_replace_easyconfigs_of_each_other(place):
    """C-04: in a directory of several sites, an easyconfig with the same name is only replaced with --overwrite."""
    shutil.copytree(place / "sites/mine", place / "sites/other")
    (place / "sites/other/site.yaml").write_text(SITE.replace("mine", "other"))
    (place / "sites/other/containers/JAX.yaml").write_text(CONTAINERS.replace("20240101", "20240202"))
    run(place, "render", *MINE)
    same = place / "easyconfigs/j/JAX/JAX-0.10.0-20250601.eb"
    before = same.read_text()
    other = ("--catalog", "sites", "--site", "other")
    said = run(place, "render", *other, status=1).stderr
    assert f"{same.relative_to(place)} is the easyconfig of the site mine, and is not replaced: choose another " in said
    assert "1 new, 0 changed, 0 up to date, 2 kept" in said
    assert same.read_text() == before
    assert "3 new" in run(place, "render", *other, "-o", "of-{site}").stderr
    assert "0 new, 2 changed, 1 up to date" in run(place, "render", *other, "--overwrite").stderr


def test_render_shows_without_writing(place):
    """--diff with an exit status for scripts, --stdout; a single container by name."""
    text = run(place, "render", *MINE, "--stdout", "JAX/v0.10.0").stdout
    assert "versionsuffix = '-20250601'" in text
    assert text.count("easyblock = ") == 1
    difference = run(place, "render", *MINE, "--diff", "JAX/0.10.0", status=1).stdout
    assert "--- /dev/null\n+++ easyconfigs/j/JAX/JAX-0.10.0-20250601.eb\n" in difference
    assert not (place / "easyconfigs").exists()
    run(place, "render", *MINE)
    assert run(place, "render", *MINE, "--diff").stdout == ""


def test_check(place):
    """Status 1 if anything is wrong; text, JSON, annotations; --strict. No temporary file is left."""
    (place / "tmp").mkdir()
    found = run(place, "check", *MINE, status=1)
    assert "3 containers: 3 errors\n" in found.stderr
    data = json.loads(run(place, "check", *MINE, "--json", status=1).stdout)
    assert [one["level"] for one in data] == ["error"] * 3
    assert [one["line"] for one in data] == [5, 6, 7]
    text = run(place, "check", *MINE, "--format", "github", status=1).stdout
    assert text.startswith("::error file=sites/mine/containers/JAX.yaml,line=5::JAX/0.5.0-20250101: ")
    run(place, "render", *MINE)
    assert run(place, "check", *MINE, TMPDIR=str(place / "tmp")).stdout == ""
    assert list((place / "tmp").iterdir()) == []
    text = WITH_VENV.replace("cuda: 12.4}}", "cuda: 12.4}, requirements: [rich]}")
    (place / "sites/mine/containers/JAX.yaml").write_text(text)
    run(place, "render", *MINE)
    assert "rich is not pinned" in run(place, "check", *MINE).stdout
    run(place, "check", *MINE, "--strict", status=1)


def test_the_catalog_of_the_project_is_in_order():
    """No site of the project has findings, and the committed easyconfigs are up to date."""
    result = run_ebsif(["check", "--all-sites", "--catalog", SITES], CHECKOUT)
    assert result.returncode == 0, result.stdout
    assert re.search(r"\d containers: \d+ warnings$", result.stderr)
    (hook,) = yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"].startswith("ebsif check --all-sites")


def test_list(place):
    """Plain columns if the output is a file; filters by name and component; archived ones on request; JSON."""
    result = run(place, "list", *MINE)
    output = result.stdout
    assert output.splitlines() == [
        "container            installed  python  in the image",
        "JAX/0.10.0-20250601             3.12    cuda 12.6",
        "JAX/0.5.0-20250101              3.12    cuda 12.4",
    ]
    assert result.stderr == "1 archived container not shown (use --archived)\n"
    assert "\x1b" not in output
    assert "0.10.0" not in run(place, "list", *MINE, "--has", "jax<0.10").stdout
    assert "0.5.0" not in run(place, "list", *MINE, "--has", "cuda>=12.6").stdout
    # like grep, no match is status 1; an empty array is JSON
    result = run(place, "list", *MINE, "--has", "vllm", status=1)
    # what a record doesn't have may be in the image
    said = "ebsif: no container is known to have vllm; the catalog lists the main components only (`ebsif installed "
    assert result.stdout == "" and result.stderr.startswith(f"{said}--has NAME` searches installed modules, `ebsif ")
    assert run(place, "list", *MINE, "--has", "vllm", "--json", status=1).stdout == "[]\n"
    # nothing that is mistyped, or no Python package, becomes part of a command
    mistyped = "no container is known to have pytroch; did you mean pytorch"
    for word, said in (("pytroch", mistyped), ("cuda", "the GPUs of LUMI don't use CUDA: the containers have ROCm\n")):
        result = run(place, "list", "--site", "lumi", "--has", word, status=1)
        assert said in result.stderr and "ebsif extend" not in result.stderr
    # which isn't mistyped
    assert "did you mean" not in run(place, "list", "--site", "lumi", "--has", "rich", status=1).stderr
    # the package that gives a container its name, which may be all that its record knows
    lines = run(place, "list", "--has", "torch").stdout.splitlines()[1:]
    assert [line.split()[-2:] for line in lines] == [["torch", "2.13.0"]] * 2
    assert "torch 2024" not in run(place, "list", "--site", "lumi", "pytorch").stdout
    # a date in place of a version says nothing about the version
    assert "PyTorch/2024" not in run(place, "list", "--site", "lumi", "--has", "torch>=2.10").stdout
    # keywords name what is in an image whose record has no versions, so a version never fits
    full = run(place, "list", "--site", "lumi", "lumi-multitorch", "--has", "xformers").stdout.splitlines()[1:]
    assert full
    assert all("-full-" in line or "-plus-" in line for line in full)
    # the word that was asked for is in the line, without a version
    assert all(line.endswith(", xformers") for line in full)
    # which is not to say that it is older
    may_fit = "more have xformers, version not recorded: ebsif list --has xformers\n"
    result = run(place, "list", "--site", "lumi", "lumi-multitorch", "--has", "xformers>=0.0.20", status=1)
    assert f"ebsif: {len(full)} {may_fit}" in result.stderr
    assert may_fit in run(place, "list", "--site", "lumi", "--has", "xformers>=0.0.20").stderr
    assert "not recorded" not in run(place, "list", "--site", "lumi", "--has", "xformers").stderr
    # where the version is known, the keyword says nothing more
    vllm = run(place, "list", "--site", "lumi", "lumi-multitorch", "--has", "vllm").stdout.splitlines()[1:]
    assert all((", vllm " in line) != line.endswith(", vLLM") for line in vllm)
    # the package of a software, in containers of another name
    assert "lumi-multitorch/2.10" in run(place, "list", "--site", "lumi", "--has", "pytorch>=2.10").stdout
    assert run(place, "list", "--site", "lumi", "lumi-multitorch", "--has", "PyTorch").stdout
    assert "0.4.0" in run(place, "list", *MINE, "--archived").stdout
    # hidden also if selected by name, and marked where shown
    assert run(place, "list", *MINE, "jax").stdout == output
    archived = "JAX/0.4.0-20240101             3.12    (archived)"
    assert run(place, "list", *MINE, "jax/0.4.0").stdout.splitlines()[1:] == [archived]
    data = json.loads(run(place, "list", *MINE, "--json", "jax/0.10.0").stdout)
    assert data[0]["module"] == "JAX/0.10.0-20250601"
    assert data[0]["components"] == {"cuda": "12.6", "jax": "0.10.0", "python": "3.12"}
    everywhere = json.loads(run(place, "list", "--all-sites", "--json", "--catalog", "sites").stdout)
    assert {one["site"] for one in everywhere} == {"archer2", "derecho", "local", "lumi", "mine"}


def test_diff_shows_the_version_of_the_software(place):
    """`diff` lists the software under the name of its package, as the pages do."""
    said = run(place, "diff", "--site", "lumi", "PyTorch/2.7.0", "PyTorch/2.7.1", status=1).stdout
    assert "~ component torch 2.7.0 -> 2.7.1\n" in said
    # without a package of another name, under its own
    said = run(place, "diff", *MINE, "JAX/0.5.0", "JAX/0.10.0", status=1).stdout
    assert "~ component jax 0.5.0 -> 0.10.0\n" in said


def typed(place, *words, output=subprocess.PIPE, **variables):
    """Run a program with this standard output, as a person does; return the CompletedProcess."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(place), **variables}
    streams = {"stdout": output, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(words, cwd=place, env=variables, check=False, **streams)


@pytest.mark.parametrize("arguments", [["list", *MINE], ["list", "--help"]])
def test_a_closed_pipe(place, arguments):
    """A reader that stops is not an error of ours; the status is that of SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    result = typed(place, EBSIF, *arguments, output=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("arguments", [["list", *MINE], ["list", "--help"], ["--help"]])
def test_a_full_disk(place, arguments):
    """E-15: which output can't be written is said once, without Python's own complaint at exit."""
    with Path("/dev/full").open("w") as full:
        result = typed(place, EBSIF, *arguments, output=full)
    assert result.returncode == 3
    assert result.stderr == "ebsif: standard output: the disk is full (make room, or choose another directory)\n"


@pytest.mark.parametrize("arguments", [["list", "-q", *MINE], ["--help"], ["show", "JAX/0.10.0", *MINE]])
def test_a_closed_output(place, arguments):
    """After `>&-` nothing is printed, and no other file gets the descriptor of standard output."""
    result = typed(place, "sh", "-c", 'exec "$@" >&-', "sh", EBSIF, *arguments)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("options", [["--stdout"], ["--diff"]])
def test_a_locale_without_the_characters(place, options):
    """What the locale can't express is escaped, as in messages."""
    path = place / "sites/mine/containers/JAX.yaml"
    path.write_text(CONTAINERS.replace("families:\n  jax: {", "families:\n  jax: {description: Gr\u00fc\u00dfe, "))
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = typed(place, EBSIF, "render", *MINE, *options, **locale)
    assert result.returncode == int(options == ["--diff"]), result.stderr
    assert "description = 'Gr\\xfc\\xdfe" in result.stdout


def test_easyconfigs_in_other_styles(place):
    """Sources as dictionaries, with or without a file name, and numbers as values are read or refused."""
    text = (
        "easyblock = 'MakeCp'\nname = 'Tool'\nversion = '1.0'\nhomepage = 'http://example.org'\ndescription = 'x'\n"
        "toolchain = SYSTEM\nfiles_to_copy = []\nmoduleclass = 'tools'\nmodextravars = {'OMP_NUM_THREADS': 4}\n"
    )
    (place / "named.eb").write_text(text + "sources = [{'filename': 'tool-1.0.sif', 'extract_cmd': 'cp %s .'}]\n")
    (place / "other.eb").write_text(text + "sources = [{'filename': 'tool-2.0.sif'}]\n")
    (place / "none.eb").write_text(text + "sources = [{'download_filename': 'x', 'git_config': {}}]\n")
    assert "variables: {OMP_NUM_THREADS: 4}" in run(place, "import", *MINE, "named.eb").stdout
    assert "none of the sources is an image" in run(place, "import", *MINE, "none.eb", status=3).stderr
    changed = run(place, "diff", *MINE, "named.eb", "other.eb", status=1).stdout
    assert "~ image file tool-1.0.sif -> tool-2.0.sif" in changed
    assert "- image file tool-1.0.sif" in run(place, "diff", *MINE, "named.eb", "none.eb", status=1).stdout


def test_verbosity(place):
    """Only results and errors with --quiet; commands with --verbose."""
    result = run(place, "render", *MINE, "--quiet")
    assert result.stdout.count("\n") == 3 and result.stderr == ""
    assert run(place, "list", *MINE, "-q").stderr == ""
    assert "JAX/0.10.0" in run(place, "list", *MINE, "-q").stdout
    assert run(place, "check", *MINE, "-q").stderr == ""
    (place / "text.sif").write_text("text")
    programs = place / "programs"
    programs.mkdir()
    # reports, like a real runtime, that this is no image
    (programs / "apptainer").symlink_to(shutil.which("false"))
    path = f"{programs}:/usr/bin:/bin"
    said = run(place, "show", "text.sif", "-v", "--no-checksum", status=3, PATH=path).stderr
    told = [line for line in said.splitlines() if line.startswith("+ ")]
    assert told[0].startswith(f"+ {programs}/apptainer inspect ")
    assert told[-1].startswith(f"+ {programs}/apptainer --silent exec --cleanenv ")


def test_show(place):
    """What is in a container and how to install it; JSON; the newest version, and which versions there are."""
    output = run(place, "show", *MINE, "JAX/v0.10.0").stdout
    rows = [("in the image", "cuda 12.6"), ("image", "jax-0.10.0.sif"), ("caches", "per job on the node in /tmp")]
    for name, value in (*rows, ("install", "eb JAX-0.10.0-20250601.eb")):
        assert f"{name:16}{value}\n" in output
    # G-05: eb doesn't find it by its name
    run(place, "render", *MINE)
    shown = run(place, "show", *MINE, "JAX/v0.10.0").stdout
    assert f"{'install':16}eb easyconfigs/j/JAX/JAX-0.10.0-20250601.eb\n" in shown
    data = json.loads(run(place, "show", *MINE, "JAX/0.10.0", "--json").stdout)
    assert data["parameters"]["gpu"] == "cuda"
    assert data["images"] == []
    newest = run(place, "show", *MINE, "jax")
    assert newest.stdout == shown
    assert "'jax' is JAX/0.10.0-20250601 of the catalog, which has 2 versions (`ebsif list JAX`)\n" in newest.stderr
    # whether the image exists
    (place / "images").mkdir()
    (place / "images/jax-0.10.0.sif").touch()
    # K-01, K-03: what a module will have of the host
    host = "host_libraries: {libraries: [libcxi.so.1]}\nhost_programs: {programs: [srun, '?sbatch']}\n"
    (place / "sites/mine/site.yaml").write_text(f"{SITE}{host}images: {{directories: [{{path: {place}/images}}]}}\n")
    shown = run(place, "show", *MINE, "JAX/0.10.0").stdout
    assert f"{place}/images (stable): found\n" in shown
    assert f"{'of the host':16}libcxi.so.1 (libraries)\n" in shown
    assert f"{'of the host':16}srun, ?sbatch (they start programs there)\n" in shown
    assert f"{place}/images (stable): not found\n" in run(place, "show", *MINE, "JAX/0.5.0").stdout
    assert "known versions:\n  0.10.0-20250601\n  0.5.0" in run(place, "show", *MINE, "JAX/9", status=3).stderr


def test_where_each_value_comes_from(place):
    """--explain names file and line of each value: of the record, families, the site, and what these extend."""
    more = place / "more/mine"
    (more / "containers").mkdir(parents=True)
    (more / "site.yaml").write_text("name: mine\ndescription: ours\nextends: mine\nbinds: {optional: [/b]}\n")
    with (place / "sites/mine/site.yaml").open("a") as profile:
        profile.write("binds:\n  optional: [/a]\nnetwork_env:\n  A: null\n  B: 1\n")
    (more / "containers/JAX.yaml").write_text(
        "name: JAX\nextends: true\nfamilies:\n  ours:\n    extends: jax\n    venv: true\n"
        "    binds: {required: [/c]}\n    components: {cuda: 12.4, cudnn: 9}\ncontainers:\n- family: ours\n"
        "  version: 0.6.0\n  components:\n    cuda: 12.8\n    cudnn: null\n  requirements:\n  - name: one\n"
        "    requirements: rich\n  date: 2025-07-01\n"
    )
    arguments = ("show", "--catalog", "more", *MINE, "JAX/0.6.0", "--explain")
    rows = {(row["field"], row["value"]): row["place"] for row in json.loads(run(place, *arguments, "--json").stdout)}
    ours, theirs = "more/mine/containers/JAX.yaml", "sites/mine/containers/JAX.yaml"
    for field, value, where in (
        ("version", "0.6.0", f"{ours}:11"),
        ("python", "3.12", f"{theirs}:3"),
        ("venv", "True", f"{ours}:6"),
        ("components.cuda", "12.8", f"{ours}:13"),
        ("binds.required", "/c", f"{ours}:7"),
        ("requirements.name", "one", f"{ours}:16"),
        ("site.gpu", "cuda", "sites/mine/site.yaml:3"),
        ("site.binds.optional", "/a", "sites/mine/site.yaml:5"),
        ("site.binds.optional", "/b", "more/mine/site.yaml:4"),
        ("site.network_env.A", "null", "sites/mine/site.yaml:7"),
        ("site.moduleclass", "ai", "default of ebsif"),
    ):
        assert rows[field, value] == where
    assert not any(field == "components.cudnn" for field, _ in rows)
    assert re.search(r"^components.cuda +12.8 +more/mine/containers/JAX.yaml:13$", run(place, *arguments).stdout, re.M)


def test_a_configuration_file(place):
    """S001-05 (in part), F-09: site and catalogs of one's own, relative to the file; options and variables win."""
    configuration = place / "etc/ebsif.yaml"
    configuration.parent.mkdir()
    configuration.write_text("site: mine\ncatalogs: [../sites]\noutput: ../out\n")
    where = {"EBSIF_CONFIG": str(configuration)}
    assert "JAX/0.10.0" in run(place, "list", **where).stdout
    run(place, "render", **where)
    assert (place / "out/j/JAX/JAX-0.5.0-20250101.eb").is_file()
    assert "PyTorch/2.13.0" in run(place, "list", EBSIF_SITE="local", **where).stdout
    assert "rocm" in run(place, "list", "--site", "lumi", EBSIF_SITE="local", **where).stdout
    # messages name the options that are needed, and no others
    (place / "out/j/JAX/JAX-0.5.0-20250101.eb").unlink()
    for options, variables, needed in (
        ([], {}, ""),
        (["--site", "mine"], {"EBSIF_SITE": "local"}, " --site mine"),
        (["--catalog", "more"], {}, " --catalog more"),
        (["-o", str(place / "out")], {}, ""),
        (["-o", "else where"], {}, " -o 'else where'"),
    ):
        (place / "more").mkdir(exist_ok=True)
        said = run(place, "check", "--quick", *options, status=1, **where, **variables).stdout
        assert f"20250101.eb does not exist: run ebsif render{needed}\n" in said
    assert "\nsee what is missing: ebsif check --site new\n" in run(place, "site", "init", "new", **where).stderr
    (place / "sites/new/site.yaml").unlink()
    configuration.write_text("sites: mine\n")
    assert "ebsif.yaml:1: sites: unknown key, did you mean 'site'?" in run(place, "list", status=3, **where).stderr
    for line in ("catalogs: ['~nobody-of-that-name/x']", "output: '~nobody-of-that-name/x'"):
        configuration.write_text(f"{line}\n")
        said = run(place, "list", status=3, **where).stderr
        # Python's own message depends on its version
        assert re.match(f"ebsif: {configuration}: ~nobody-of-that-name/x: .*determine home directory", said)
    configuration.write_text("catalogs: [nowhere]\n")
    assert "nowhere does not exist: create it with `mkdir " in run(place, "list", status=3, **where).stderr
    assert "/nowhere/new/site.yaml\n" in run(place, "site", "init", "new", **where).stdout
    assert "unknown site 'other'" in run(place, "list", "--site", "other", status=3, **where).stderr
    said = run(place, "list", status=3, EBSIF_CONFIG=str(place / "none.yaml")).stderr
    assert "none.yaml, which EBSIF_CONFIG names, is not a file: correct or unset the variable" in said


def test_a_site_may_replace_parts_of_the_projects_catalog(place):
    """A file of the same name replaces the project's, other files stay; without a profile the project's is used."""
    folder = place / "sites/lumi/containers"
    folder.mkdir(parents=True)
    (folder / "JAX.yaml").write_text(CONTAINERS)
    lumi = ("--catalog", "sites", "--site", "lumi")
    output = run(place, "list", *lumi).stdout
    assert "JAX/0.10.0" in output and "PyTorch/2.7.0" in output
    (folder / "PyTorch.yaml").write_text(CONTAINERS.replace("JAX", "PyTorch"))
    output = run(place, "list", *lumi).stdout
    assert "PyTorch/0.10.0" in output and "PyTorch/2.7.0" not in output
    assert "standard-g" in run(place, "job", "M/1", *lumi, "--account", "a", "--", "x").stdout


def test_no_credential_is_written(place):
    """G-09: extend, render and check refuse a password in requirements; no file and no message contains it."""
    address = "https://bob:S3cr3tPw@example.org/simple"
    (place / "mine.txt").write_text(f"--extra-index-url {address}\neinops\n")
    record = place / "sites/mine/containers/JAX.yaml"
    record.write_text(WITH_VENV)
    said = run(place, "extend", *MINE, "JAX/0.10.0", "-r", "mine.txt", "--name", "x", "-o", "out", status=3)
    assert not (place / "out").exists()
    record.write_text(record.read_text().replace("date: 20250601,", f"date: 20250601, requirements: ['-i {address}'],"))
    for command in ("render", "check"):
        done = run(place, command, *MINE, "-o", "out", status=1)
        assert done.stdout.count("S3cr3tPw") == done.stderr.count("S3cr3tPw") == 0
        assert "a credential is written out (https://bob:****)" in done.stdout + done.stderr
    assert "a credential is written out (https://bob:****)" in said.stderr
    assert not [path for path in place.rglob("*.eb") if "S3cr3tPw" in path.read_text()]


def test_an_extension_of_an_archived_container(place):
    """I-06: the user's new module is visible and has the name that was announced; it says that its base is archived."""
    record = place / "sites/mine/containers/JAX.yaml"
    record.write_text(WITH_VENV.replace("archived: true", "archived: {since: 2026-01-23, reason: it is old}"))
    run(place, "extend", *MINE, "JAX/0.4.0", "--add", "rich", "--name", "z", "-o", "out")
    (path,) = (place / "out").rglob("*.eb")
    text = path.read_text()
    assert "hidden" not in text and "modloadmsg" not in text
    assert "warnings = ['its base JAX/0.4.0-20240101 was archived on 2026-01-23: it is old.']\n" in text


def test_changes_by_hand_are_kept_each_time(tmp_path):
    """extend --rebuild, run twice: both earlier easyconfigs are kept."""
    path = tmp_path / "a.eb"
    for text in ("one\n", "two\n", "three\n", "three\n"):
        writing.write(path, text, again=True)
    kept = {"a.eb": "three\n", "a.eb.old": "one\n", "a.eb.old2": "two\n"}
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == kept


@pytest.mark.parametrize(("locked", "is_kept"), [(True, True), (False, False)])
def test_an_easyconfig_that_another_eb_installs(tmp_path, monkeypatch, locked, is_kept):
    """C-04: two attempts at once write the same file; the one that fails because of the other doesn't remove it."""
    path = tmp_path / "x.eb"
    reason = "Lock /locks/x.lock already exists, aborting!" if locked else "no"
    place = ModulePlace(path, tmp_path, "x", tmp_path / "x.lua", tmp_path / "x")
    monkeypatch.setattr(installing.running, "install", lambda _: Result(status=1, error=reason))
    with pytest.raises(installing.ExtendingError), writing.removed_after_failure(path) as written:
        path.write_text("text")
        written.append(path)
        installing.install(place, Request("extend"), "--sourcepath=x")
    assert path.exists() == is_kept


@pytest.mark.parametrize(
    "command",
    [
        *(["list", "JAX"], ["show", "JAX/0.10.0"], ["list", "--mine"], ["installed"]),
        ["job", "JAX/0.10.0", "--", "t.py"],
        ["extend", "JAX/0.10.0", "--add", "rich", "--name", "mine", "-n"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_wrong_file_of_the_catalog_stops_no_user(place, command):
    """F-13: users' commands go on with the rest, and one line says what is left out; the catalog's own don't."""
    folder = place / "sites/mine/containers"
    (folder / "Wrong.yaml").write_text(WRONG)
    (folder / "JAX.yaml").write_text(WITH_VENV)
    rest = command.index("--") if "--" in command else len(command)
    said = run(place, *command[:rest], *MINE, *command[rest:]).stderr
    (line,) = [line for line in said.splitlines() if "Wrong" in line]
    assert line.startswith("ebsif: sites/mine/containers/Wrong.yaml:3: ")
    assert line.endswith(": records with mistakes are left out (see `ebsif check`)")


def test_a_wrong_file_is_an_error_for_those_who_edit_it(place):
    """F-13: render and check report it, and neither add nor update takes its records for missing ones."""
    (place / "sites/mine/containers/Wrong.yaml").write_text(WRONG)
    for command, status in ((["render", "-n"], 1), (["check"], 1), (["scan"], 3), (["add", "x.sif"], 3)):
        said = run(place, *command, *MINE, status=status)
        assert "Wrong.yaml:3: " in said.stdout + said.stderr
        assert "left out" not in said.stderr


@pytest.mark.parametrize(
    "command",
    [["list"], ["render"], ["check"], ["scan"], ["docs", "-o", "pages"], ["show", "JAX"]],
    ids=lambda words: words[0],
)
def test_a_closed_catalog_is_not_an_empty_one(place, command):
    """F-13: containers that can't be read don't count as removed, and their published pages stay."""
    run(place, "docs", "-o", "pages", *MINE)
    before = sorted(place.glob("pages/**/*"))
    (place / "sites/mine/containers").chmod(0)
    try:
        result = run(place, *command, *MINE, status=1 if command == ["check"] else 3)
    finally:
        (place / "sites/mine/containers").chmod(0o755)
    assert re.search(r"sites/mine/containers:.* can't be read: Permission denied\n", result.stdout + result.stderr)
    assert sorted(place.glob("pages/**/*")) == before


@pytest.mark.parametrize("words", [["--add", ""], ["--add", "# rich"]])
def test_packages_that_can_not_be_meant(place, words):
    """No easyconfig without packages is written, for example when a shell variable is not set."""
    (place / "sites/mine/containers/JAX.yaml").write_text(WITH_VENV)
    result = run(place, "extend", "JAX/0.10.0", *words, "--name", "q", "-n", *MINE, status=3)
    assert "--add names no package: write a name, such as einops" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("text", ["", "# site: lumi\n", None])
def test_a_configuration_without_settings_is_none(place, text):
    """F-09: an empty configuration file, one of comments only, and a home that doesn't exist stop nothing."""
    file = place / ".config/ebsif/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text or "")
    home = place if text is not None else place / "missing"
    assert "PyTorch/2.13.0" in run(place, "list", HOME=home).stdout
