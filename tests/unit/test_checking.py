"""`ebsif check` reports mistakes with file and line, in every format."""

import json
import re
import sys
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.values import current_root
from ebsif.catalog import reading, site
from ebsif.catalog.proposal import AddingError
from ebsif.catalog.settings import Settings
from ebsif.catalog.yamlerrors import DocumentError
from ebsif.check import contents, easyconfigs, sites
from ebsif.check.sites import check_sites
from ebsif.commands.add import check_place
from ebsif.images import inspection
from ebsif.render import easyconfig, rendering
from ebsif.report.findings import ERROR, Finding
from ebsif.scan.places import ImagePlace, places_of
from support import CHECKOUT

SITE = "name: mine\ndescription: a machine of ours\n"
HEAD = """\
name: Tool
families:
  tool:
    homepage: https://example.org/
    file: tool-{version}.sif
    suffix: -{date}
    init: image
containers:
  - family: tool
    version: 1.0
    date: 20250101
"""


@pytest.fixture
def place(tmp_path):
    """Return a function that writes a catalog for a site and returns its settings."""

    def write(text=HEAD, profile=SITE, name="mine"):
        folder = tmp_path / "sites" / name / "containers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / "site.yaml").write_text(profile.replace("mine", name))
        (folder / "Tool.yaml").write_text(text)
        return Settings(name, (tmp_path / "sites", site.SITES), tmp_path / "out" / "{site}")

    return write


def findings(settings, **options):
    """Return the findings for a site whose easyconfigs are up to date."""
    try:
        containers = settings.containers(settings.site())
        for one in containers:
            rendering.write([rendering.render(one, settings.output)], settings.output)
    except Exception:
        pass
    return [
        one
        for one in check_sites(settings, [None], **options)
        if isinstance(one, Finding) and "does not exist: run ebsif render" not in one.text
    ]


# in the record, after its first three lines; then in the whole file; then in the profile
MISTAKES = [
    ("binds: {optional: [scratch]}", 12, "binds.optional, entry 1: should be source[:target[:options]], with full"),
    ("binds: {optional: ['/a,/b']}", 12, "binds.optional, entry 1: has a comma, at which the container runtime"),
    ("binds: {required: ['/a:/b:ro:c']}", 12, "binds.required, entry 1: has more than source, target and options"),
    # of 0.3.0
    ("binds: {libraries: {/libx.so: if_missing}}", 12, "binds.libraries: was removed: name these libraries in "),
    ("host_programs: {programs: [a/b]}", 12, "host_programs.programs, entry 1: should be the name or the full path"),
    ("host_libraries: {libraries: [x, a b]}", 12, "host_libraries.libraries, entry 2: should be a name or a full path"),
    ("host_programs: {files: [/etc]}", 12, "host_programs.programs: is missing"),
    ("init: none\n    venv: true", 12, "an image without Python can't have a venv"),
    ("requirements: [a==1]", 12, "requirements need a venv: add 'venv: true', or remove the requirements"),
    ("venv: true\n    requirements: [-e /x]", 13, "the module would depend on a directory elsewhere: -e /x"),
    ("wrappers: python", 12, "wrappers: should be a list, or should be 'all', found 'python'"),
    ("masked_paths: 3", 12, "masked_paths: should be a list, or should be a table, found '3'"),
    ("history: ''", 12, "history: should not be empty, found ''"),
    ("size: 0", 12, "size: should be at least 1, found '0'"),
    (f"size: {'1' * 5000}", 12, "size: should be a smaller number, found '111"),
    ("size: 1.5", 12, "size: should be a whole number, found '1.5'"),
    ("venv: maybe", 12, "venv: should be true or false, found 'maybe'"),
    ("support: [a]", 12, "support: should be text, found a list"),
    ("archived: 3", 12, "archived: should be true or false, or should be a table, found '3'"),
    ("host_programs: {programs: []}", 12, "programs: should have 1 or more entries, found an empty list"),
    ("host_programs: {program: [x]}", 12, "host_programs.program: unknown key, did you mean 'programs'?"),
    ("gpu:none", 12, "this line should be 'key: value' with a blank after the colon"),
    ("wrappers: [bash]", 12, "'bash' would hide the host's"),
    ("script_names: {bin/x: bin/y}", 12, "'bin/x' can't be another name of 'bin/y'"),
    ("image: central", 12, "'image' is 'central', so 'image_dirs' must say where the image is"),
    ("signature_keys: [~/site.asc]", 12, "signature_keys, entry 1: '~/site.asc' is another directory for each"),
    ("images: {directories: [{path: a}]}", 12, "'a' is not a full path: write that, or add a root"),
    ("entry_point: opt/x", 12, "'entry_point' should be the full path of a program of the image"),
    ("masked_paths: [a]", 12, "'a' can't be used: it should be a full path"),
    ("moduleclass: nonsense", 9, "moduleclass provided 'nonsense' is not valid"),
    ("container_env: {A: '~/x'}", 12, "container_env.A: begins with '~'"),
    ("gpu: amd", 12, "gpu: should be 'none', 'rocm' or 'cuda', found 'amd'"),
    ("sha256: ABC", 12, "sha256: should be 64 hexadecimal digits, as `sha256sum` prints them, found 'ABC'"),
    ("archived: {since: '23.1.2026', reason: x}", 12, "archived.since: should be a date, such as 2026-01-23"),
    ("archived: {since: 2026-13, reason: x}", 12, "archived.since: should be a date that exists, found '2026-13'"),
    ("wrapers: [python]", 12, "wrapers: unknown key, did you mean 'wrappers'?"),
    ("xyz: 1", 12, "xyz: unknown key (`ebsif check --schema NAME`"),
    ("file: 'tool-{version.sif'", 12, "file: should have braces only around placeholders, such as {version}"),
    ("file: tool-{rocm}.sif", 12, "there is no value for {rocm} in 'tool-{rocm}.sif'"),
    ("variant: a/b", 12, "variant: should contain letters, digits and _ . + - only"),
    ("date: 20250102", 12, "duplicate key 'date': remove one of them"),
    ("venv_name: a.\n    venv: true", 12, "'a.' can't be the name of a venv"),
]
MISTAKES_OF_FILES = [
    ("date: 20250101", "date: 2026-13-45", 11, "date: should be a date that exists, found '2026-13-45'"),
    ("- family: tool", "- family:tool", 10, "the line before, which should be 'key: value' with a blank after the"),
    ("family: tool", "family: tol", 9, "containers, entry 1, family: unknown family 'tol' (known: tool)"),
    ("    init: image", "    extends: base", 7, "the family 'tool' extends the unknown family 'base'"),
    ("    init: image", "    extends: tool", 7, "the family 'tool' extends itself"),
    ("    date: 20250101", "    extends: tool", 11, "containers, entry 1, extends: unknown key"),
    ("    homepage: https://example.org/\n", "", 8, "neither the record nor its family has a homepage"),
    ("  - family: tool\n    version: 1.0", "  - family: tool", 9, "containers, entry 1, version: is missing"),
    ("name: Tool", "name: Toll", 1, "name: 'Toll' should be the name of the file, Tool"),
    ("families:", "extends: true\nfamilies:", 2, "extends: no other catalog has a file Tool.yaml for this site"),
    ("    date: 20250101", "    date: &x 20250101", 11, "anchors and aliases"),
    ("    date: 20250101", "\tdate: 20250101", 11, "there is a tab"),
]
MISTAKES_OF_PROFILES = [
    ("signature_keys: [~/x]", 3, "'~/x' is another directory for each account: write the full path"),
    ("binds: {file: ~/x}", 3, "'~/x' is another directory for each account: write the full path"),
    ("images: {root: ~/x, directories: [{path: a}]}", 3, "'~/x' is another directory for each account"),
    ("images: {root: /a, directories: [{path: ~/x}]}", 3, "'~/x' is another directory for each account"),
    ("gpu:none\nsupport: x", 3, "this line should be 'key: value' with a blank after the colon"),
    ("scheduler:\n  default_partition: b\n  partitions:\n    a: {}", 4, "there is no partition 'b' (known: a)"),
    ("scheduler:\n  partitions:\n    a: {}\n  install:\n    partition: b", 7, "there is no partition 'b' (known: a)"),
    ("scheduler:\n  partitions:\n    a:\n      tasks: 2\n      cpu_masks: ['0xf']", 7, "exclusive should be true"),
    ("scheduler:\n  partitions: {a: {tasks: 2, exclusive: true, cpu_masks: ['0xf']}}", 4, "one mask for each of"),
    ("gpu: none\ngpu_visibility: all", 4, "gpu is none, so there should be no gpu_visibility"),
    ("images:\n  directories:\n    - {path: /a}\n    - {path: b}", 6, "'b' is not a full path: write that, or"),
    ("scheduler: {kind: slrm}", 3, "scheduler.kind: should be 'slurm', 'pbs' or 'flux', found 'slrm'"),
    ("scheduler: {partitions: {a: {tasks: x}}}", 3, "a.tasks: should be a whole number, found 'x'"),
    ("driver_rocm: [a, b, c]", 3, "driver_rocm: should have 2 entries at most, found a list"),
    ("images: {directories: [{pth: /a}]}", 3, "directories, entry 1, pth: unknown key, did you mean 'path'?"),
    ("not_inherited: [binds]", 3, "nothing is inherited without 'extends': remove it"),
    ("extends: mine", 3, "extends: no other catalog has a site 'mine'"),
    ("extends: lumi\nscheduler:\n  partitions: {small-g: nul}", 5, "partitions.small-g: should be a table"),
    ("extends: lumi\nscheduler:\n  partitions: {standard-g: null}", 4, "there is no partition 'standard-g' (known: "),
]


# what is right, or what to do
REMEDY = re.compile(
    r"should|known|did you mean|write|[aA]dd |[uU]se |remove|[lL]eave|letters|needs? |must|indent|"
    r"repeat|valid: \[|has to be|is missing$"
)


def one_error(found, expected, file="containers/Tool.yaml"):
    """Return the line of the only error, after checking its file and text."""
    errors = [one for one in found if one.level == ERROR]
    assert len(errors) == 1, found
    assert errors[0].path.endswith(f"sites/mine/{file}")
    assert REMEDY.search(errors[0].text), errors[0].text
    assert expected in errors[0].text
    assert not any(word in str(errors[0]) for word in ("function-", "list[", "literal[", "pyheader"))
    return errors[0].line


@pytest.mark.parametrize(("lines", "line", "expected"), MISTAKES, ids=[lines for lines, _, _ in MISTAKES])
def test_mistakes_in_a_record(place, lines, line, expected):
    """I-10: reported once, with file, the line of the field if there is one, and what is right or to do."""
    found = findings(place(f"{HEAD}    {lines}\n"))
    # missing values for placeholders, and what needs a venv, concern the record as a whole
    whole = expected.startswith(("there is no value for", "requirements need"))
    assert one_error(found, expected) == (9 if whole else line)


@pytest.mark.parametrize(("before", "after", "line", "expected"), MISTAKES_OF_FILES)
def test_mistakes_in_a_file(place, before, after, line, expected):
    """Unknown families are reported with the line of the record, not the first line of the file."""
    assert one_error(findings(place(HEAD.replace(before, after, 1))), expected) == line


@pytest.mark.parametrize(("lines", "line", "expected"), MISTAKES_OF_PROFILES)
def test_mistakes_in_a_profile(place, lines, line, expected):
    """I-11: mistakes in a scheduler's settings are reported with their own line; so is a wrong `extends`."""
    assert one_error(findings(place(profile=f"{SITE}{lines}\n")), expected, "site.yaml") == line


def test_valid_binds_have_no_findings(place):
    """Binds may have options, and paths with commas and colons."""
    binds = r"binds: {required: ['/a:/b:ro', '/a\,b:/c\:d', '/a:/b:image-src=/x,ro']}"
    assert findings(place(f"{HEAD}    {binds}\n")) == []


def test_review_comments_are_reported(place):
    """Each review comment causes one warning."""
    lines = (
        "    variant: a  # review: from the file name\n    # review\n    usage: a review\n"
        "    doc: it's one  # review: Anna's\n    support: x# review\n"
    )
    found = findings(place(HEAD + lines))
    assert [(one.level, one.line) for one in found] == [("warning", 12), ("warning", 13), ("warning", 15)]
    assert [one.subject for one in found] == ["variant", "Tool", "doc"]
    assert "not reviewed yet: from the file name (check it, then remove the comment '# review')" in found[0].text


def test_required_signatures(place, tmp_path):
    """R-04: a key that isn't there and an unsigned image are found before eb; elsewhere nothing is there."""
    profile = f"{SITE}images: {{directories: [{{path: {tmp_path}/images}}]}}\nsignature_keys: [KEY]\n"
    assert findings(place(profile=profile.replace("KEY", "/none/site.asc"))) == []
    (one,) = findings(place(profile=profile.replace("KEY", "site.asc")))
    assert "signature_keys, entry 1: 'site.asc' is not a full path" in one.text
    (tmp_path / "images").mkdir()
    (tmp_path / "images/tool-1.0.sif").write_bytes(b"image")
    texts = " ".join(one.text for one in findings(place(profile=profile.replace("KEY", "/none/site.asc"))))
    assert "signature_keys: /none/site.asc does not exist" in texts
    assert "tool-1.0.sif is not signed, so eb will refuse it" in texts
    (tmp_path / "images/tool-1.0.sif").unlink()
    source = f"oci:/x@sha256:{'0' * 64}"
    found = findings(place(f"{HEAD}    source: {source}\n", profile.replace("KEY", "/none/site.asc")))
    assert [one.level for one in found if "what the runtime converts has no signature" in one.text] == ["warning"]


def test_easybuilds_own_checks_for_each_kind(place):
    """Values that EasyBuild rejects are found, with one parsed easyconfig per kind."""
    record = "  - {{family: tool, version: 2.{0}, date: 1, venv: true, requirements: [a=={0}]}}\n"
    records = "".join(map(record.format, range(5)))
    settings = place(HEAD + records + "  - {family: tool, version: 3.0, date: 1, support: 'x%(name)s'}\n")
    calls = []
    reading = easyconfigs.framework.read
    easyconfigs.framework.read = lambda path: calls.append(path) or reading(path)
    try:
        assert findings(settings) == []
        assert len(calls) == 3
        found = findings(place(HEAD + records.replace("date: 1", "date: 1, moduleclass: none")))
        assert len([one for one in found if "moduleclass provided 'none'" in one.text]) == 5
    finally:
        easyconfigs.framework.read = reading


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("version = '1.0'", "version = '1.1'", "version is '1.1', and should be '1.0'"),
        # an easyconfig of a kind that EasyBuild has read already
        ("version = '2.0'", "version = '2.1'", "version is '2.1', and should be '2.0'"),
        ("version = '2.0'", "version ? '2.0'", "EasyBuild does not read what was rendered"),
    ],
)
def test_values_that_are_rendered_wrongly(place, monkeypatch, before, after, expected):
    """A value that EasyBuild reads differently from the record is named, with both values."""
    settings = place(f"{HEAD}  - {{family: tool, version: 2.0, date: 20250101}}\n")
    assert findings(settings) == []
    render = easyconfig.render
    monkeypatch.setattr(easyconfig, "render", lambda one: render(one).replace(before, after))
    assert [(one.level, expected in one.text) for one in findings(settings)] == [("error", True)]


def test_style_is_checked_for_each_kind(tmp_path):
    """A line that is too long, or another mistake, is reported in each file that has it."""
    paths = [tmp_path / f"{number}.eb" for number in range(4)]
    for path, text in zip(paths, ("a = 'x'\n", "b = 'yy'\n", f"c = '{'z' * 130}'\n", f"d = '{'x' * 130}'\n")):
        path.write_text(text)
    (tmp_path / "4.eb").write_text("a='x'\n")
    found = [(one.path[-4:], one.line, one.text[:11]) for one in easyconfigs.check_style([*paths, tmp_path / "4.eb"])]
    assert found == [("2.eb", 1, "style: E501"), ("3.eb", 1, "style: E501"), ("4.eb", 1, "style: E225")]


def test_without_pycodestyle(place, monkeypatch, capsys):
    """After a plain installation everything except style is checked, and a message says so once."""
    monkeypatch.setitem(sys.modules, "pycodestyle", None)
    settings = place(HEAD + HEAD.partition("containers:\n")[2].replace("1.0", "2.0"))
    assert findings(settings) == []
    assert capsys.readouterr().err.count("skipping the style check of easyconfigs: pip install pycodestyle") == 1
    hook = (CHECKOUT / ".pre-commit-hooks.yaml").read_text()
    assert "additional_dependencies: [pycodestyle]" in hook


@pytest.mark.parametrize("break_it", ["yaml", "not text", "gone", "output"])
def test_every_kind_of_error_in_every_format(place, tmp_path, monkeypatch, ebsif, break_it):
    """Unreadable files are findings, too; JSON output stays JSON, and workflows get annotations."""
    settings = place()
    findings(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    record = tmp_path / "sites/mine/containers/Tool.yaml"
    arguments = ["--catalog", "sites", "--site", "mine", "-o", "out/{site}"]
    if break_it == "yaml":
        record.write_text("a: [\nb\n")
    elif break_it == "not text":
        record.write_bytes(b"\xff\xfe")
    elif break_it == "gone":
        record.unlink()
        record.symlink_to("nowhere")
    else:
        (tmp_path / "out/mine/t/Tool/Tool-1.0-20250101.eb").write_bytes(b"\xff")
    text = ebsif("check", *arguments, status=1)
    assert text.err.endswith(": 1 error\n")
    (one,) = json.loads(ebsif("check", *arguments, "--json", status=1).out)
    assert text.out == str(Finding(**{key: value or "" for key, value in one.items()})) + "\n"
    assert one["level"] == "error" and one["path"]
    said = ebsif("check", *arguments, "--format", "github", status=1)
    assert said.out.startswith(f"::error file={one['path']},line={one['line']}::")
    # what was typed is no finding
    for number, option in ((1, "no catalog"), (3, "nowhere")):
        assert ebsif("check", *arguments[:number], option, *arguments[number + 1 :], status=3).err.startswith("ebsif: ")


def test_annotations_are_single_lines():
    """Characters with a meaning in GitHub's workflow commands are escaped."""
    one = Finding("error", "x", "50%\nmore: a, b", "a:b,c", 3)
    assert one.github == "::error file=a%3Ab%2Cc,line=3::x: 50%25%0Amore: a, b"
    assert str(Finding("error", "", "x\ny")) == "error: x\\ny"


def test_which_sites_are_checked(place, tmp_path, ebsif, monkeypatch):
    """I-10: sites of the catalogs that are named, or of the one in this directory; with --site only that site."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EBSIF_SITE", raising=False)
    for name in ("mine", "other"):
        findings(place(name=name))
    catalog, output = ["--catalog", str(tmp_path / "sites")], ["-o", str(tmp_path / "out/{site}")]
    both = "2 containers: nothing is wrong\n"
    assert ebsif("check", "--all-sites", *catalog, *output).err == both
    monkeypatch.chdir(tmp_path / "sites")
    output.append("--quick")
    assert ebsif("check", *output).err == f"ebsif: checking the catalog in this directory: mine, other\n{both}"
    assert ebsif("check", *output, "--catalog", ".").err == both
    assert ebsif("check", *output, "--catalog", ".", "--site", "mine").err == "1 container: nothing is wrong\n"
    # records of one's own for a site of the project, whose records, which are merged, have no easyconfigs here
    (tmp_path / "sites/lumi/containers").mkdir(parents=True)
    said = ebsif("check", "--all-sites", *catalog, *output, status=1).out.splitlines()
    assert said and all("/lumi/" in line for line in said)


def test_one_bad_file_does_not_hide_the_others(place, tmp_path):
    """Readable files are still checked, and easyconfigs of unreadable ones are not reported as obsolete."""
    settings = place()
    findings(settings)
    other = HEAD.replace("name: Tool", "name: Other")
    (tmp_path / "sites/mine/containers/Other.yaml").write_text(other.replace("family: tool", "family: tol"))
    found = findings(settings)
    assert [(one.path[-10:], one.line) for one in found] == [("Other.yaml", 9)]
    place("a: [")
    assert [one.path[-10:] for one in findings(settings)] == ["Other.yaml", "/Tool.yaml"]
    # likewise for a record whose name can't be determined
    (tmp_path / "sites/mine/containers/Other.yaml").unlink()
    (one,) = findings(place(HEAD.replace("    date: 20250101\n", "")))
    assert "there is no value for {date}" in one.text


def test_a_wrong_field_hides_nothing(place):
    """Unknown families and other wrong records in the same file are reported as well, each with its line."""
    wrong = "    hsh: x\n  - {family: tol, version: 2.0}\n  - {family: tool, version: [3]}\n  - {family: toll}\n  - 7\n"
    expected = [
        (12, "unknown key, did you mean 'hash'?"),
        (13, "unknown family 'tol' (known: tool)"),
        (14, "should be text, found a list"),
        (15, "unknown family 'toll' (known: tool)"),
        (15, "containers, entry 4, version: is missing"),
        (16, "containers, entry 5: should be a table"),
    ]

    def said(text):
        return sorted((one.line, one.text) for one in findings(place(text)))

    told = said(HEAD + wrong)
    assert [line for line, _ in told] == [line for line, _ in expected]
    assert all(words in text for (_, text), (_, words) in zip(told, expected)), told
    with_base = HEAD.replace("    init: image", "    init: imag\n    extends: base")
    assert [line for line, _ in said(with_base)] == [7, 8]
    # where families is no table, or a family is none, nothing else is reported
    assert len(said(HEAD.replace("  tool:\n", "  tool: x\n  other:\n"))) == 1
    assert [line for line, _ in said(HEAD.partition("containers:")[0].replace("tool:", "- a") + "containers: x\n")]


def test_all_files_are_reported(place, tmp_path, ebsif, monkeypatch):
    """F-13: `check` reports the errors in each file of each site, and `list` one of each site, with lines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("mine", "other"):
        place(HEAD.replace("family: tool", "family: tol"), name=name)
    text = HEAD.replace("name: Tool", "name: Other")
    (tmp_path / "sites/mine/containers/Other.yaml").write_text(text.replace("version: 1.0", "version: a: b"))
    (tmp_path / "sites/third").mkdir()
    (tmp_path / "sites/third/site.yaml").write_text("name: third\n")
    arguments = ["--all-sites", "--catalog", str(tmp_path / "sites")]
    places = ["mine/containers/Other.yaml:10: ", "mine/containers/Tool.yaml:9: "]
    places += ["other/containers/Tool.yaml:9: ", "third/site.yaml:1: "]
    told = ebsif("check", *arguments, status=1).out.splitlines()
    assert len(told) == len(places), told
    assert all(place in line for place, line in zip(places, told)), told
    told = ebsif("list", *arguments).err.splitlines()
    # of those of the site mine, the first
    assert len(told) == len(places) and "not shown" in told[-1], told
    assert all(place in line for place, line in zip([places[0], *places[2:]], told)), told
    assert "and 1 more problem" in told[0]
    (tmp_path / "sites/mine/site.yaml").unlink()
    said = ebsif("list", *arguments[1:], "--site", "mine", status=3)
    assert f"unknown site 'mine': there is no {tmp_path}/sites/mine/site.yaml (known: " in said.err


def test_the_easyconfigs_that_were_installed(tmp_path, ebsif, monkeypatch):
    """Without a catalog and easyconfigs of one's own, those installed with the project are checked."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    told = ebsif("check", "--all-sites", "--quick")
    assert "; checking the installed easyconfigs in " in told.err
    assert " warnings\n" in told.err
    assert "here/p/PyTorch/PyTorch-1.13.1" in ebsif("check", "--site", "archer2", "--quick", "-o", "here", status=1).out


# --- images

NOT_EXAMINED = "1 container not examined, because the image is in no image directory here: Tool/1.0-20250101"


def test_missing_and_changed_images(place, tmp_path):
    """I-03: missing central images are always reported; --images reports all that are missing or changed."""
    images = tmp_path / "images"
    # what has too long a name can't be looked for
    others = f"{{path: {tmp_path}/not-mounted}}, {{path: {tmp_path}/{'x' * 300}/images}}"
    profile = f"{SITE}images: {{directories: [{{path: {images}}}, {others}]}}\n"
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of b"test"
    central = place(f"{HEAD}    image: central\n    sha256: {digest}\n", profile)
    # on another machine
    (one,) = findings(central, images=True)
    assert (one.level, one.text) == ("note", NOT_EXAMINED)
    images.mkdir()
    assert "the image tool-1.0.sif is missing in " in findings(central)[0].text
    # it may be there
    images.chmod(0)
    (closed,) = findings(central, images=True)
    images.chmod(0o755)
    assert (closed.level, closed.text) == ("note", NOT_EXAMINED)
    (images / "tool-1.0.sif").write_bytes(b"test")
    assert findings(central, images=True) == []
    (images / "tool-1.0.sif").write_bytes(b"tost")
    assert findings(central) == []
    (one,) = findings(central, images=True)
    assert (one.level, one.line) == ("error", 9)
    assert "tool-1.0.sif was altered, so it is not the image of the record: its SHA256 is " in one.text
    own = place(f"{HEAD}    sha256: {digest}\n", profile)
    (images / "tool-1.0.sif").unlink()
    assert findings(own) == []
    assert [one.level for one in findings(own, images=True)] == ["warning"]
    # another size is found without reading the image
    (images / "tool-1.0.sif").write_bytes(b"tes")
    sized = place(f"{HEAD}    size: 4\n    sha256: {digest}\n", profile)
    (one,), same = findings(sized), findings(sized, images=True)
    assert same == [one]
    assert "tool-1.0.sif was truncated, so it is not the image of the record: it has 3 bytes, not 4" in one.text


PYTHON = inspection.Python("3.12.1", "/usr", "/usr", {"torch": "2.7.0+rocm6.2"})
OF_CONDA = "init: conda-manual\n    conda_env: x"
CONTENTS = [
    ("python: 3.12\n    components: {torch: 2.7.0, rocm: 6.2}\n    python_packages: [torch]\n    wrappers: [tool]", []),
    ("python: 3.11", ["error: /tool-1.0.sif has Python 3.12.1, not 3.11"]),
    ("image_packages: {torch: 2.8.0}", ["error: /tool-1.0.sif has torch 2.7.0+rocm6.2, not 2.8.0"]),
    ("image_packages: {Numpy: 1.0}", ["error: /tool-1.0.sif has no Numpy, but the record has Numpy 1.0"]),
    ("components: {torch: 2.8.0}", ["warning: /tool-1.0.sif has torch 2.7.0+rocm6.2, not 2.8.0"]),
    ("venv: true\n    components: {torch: 2.8.0}\n    requirements: [torch==2.8.0]", []),
    ("package: torch", ["warning: /tool-1.0.sif has torch 2.7.0+rocm6.2, not 1.0"]),
    ("components: {rocm: 6.1.3}", ["warning: /tool-1.0.sif has rocm 6.2.4, not 6.1.3"]),
    ("wrappers: [tool, other]", ["error: /tool-1.0.sif has no program other, which 'wrappers' names"]),
    ("entry_point: /none", ["error: /tool-1.0.sif has no program /none, which is the 'entry_point'"]),
    (OF_CONDA, ["error: /tool-1.0.sif has no Conda environment /opt/miniconda3/envs/x (it has: /opt/c/envs/x)"]),
    (f"{OF_CONDA}\n    conda_root: /opt/c\n    python: 3.12", ["error: /tool-1.0.sif has Python 3.10.1, not 3.12"]),
    ("init: none", []),
]


@pytest.mark.parametrize(("lines", "expected"), CONTENTS, ids=[lines for lines, _ in CONTENTS])
def test_the_content_of_images(place, tmp_path, monkeypatch, lines, expected):
    """I-03: check --deep compares Python, environment, packages, components and programs with the record."""
    conda = [inspection.CondaEnvironment("/opt/c/envs/x", "3.10.1")]
    found = inspection.Inspection("", "", 1, python=PYTHON, components={"rocm": "6.2.4"}, conda=conda)
    monkeypatch.setattr(inspection, "inspect", lambda path, checksum: found)
    monkeypatch.setattr(inspection, "programs", lambda found, names: set(names) & {"tool"})
    head = HEAD.replace("    init: image\n", "") if "init:" in lines else HEAD
    settings = place(f"{head}    {lines}\n", f"{SITE}images: {{directories: [{{path: {tmp_path}}}]}}\n")
    # on another machine
    assert [one.text for one in findings(settings, quick=True, deep=True)] == [NOT_EXAMINED]
    (tmp_path / "tool-1.0.sif").write_text("")
    said = [one for one in findings(settings, quick=True, deep=True) if "no sha256" not in one.text]
    remedy = ": correct the record, or put the right image there"
    assert [f"{one.level}: {one.text.replace(str(tmp_path), '')}" for one in said] == [one + remedy for one in expected]


@pytest.mark.parametrize(("package", "expected"), [("", ["tool 3, not 1.0"]), ("    package: another-tool\n", [])])
def test_a_package_with_the_name_of_the_software(place, package, expected):
    """I-03: where `package` names the software's Python package, it is another one, whose version is its own."""
    settings = place(HEAD + package)
    (container,) = settings.containers(settings.site())
    found = inspection.Inspection("", "", 1, python=inspection.Python("3.12.1", "/usr", "/usr", {"tool": "3"}))
    assert list(contents.wrong_components(container, found)) == expected


def test_containers_that_are_not_examined(place, tmp_path, ebsif, monkeypatch):
    """I-03: --deep and --images say which they are, once for each file; that is no warning, also with --strict."""
    # none is needed where no image is
    monkeypatch.setattr(inspection, "find_runtime", lambda: None)
    assert not findings(place(f"{HEAD}  - {{family: tool, version: 2.0, date: 1}}\n"), quick=True)
    command = f"check --quick --strict --site mine --catalog {tmp_path}/sites -o {tmp_path}/out/mine".split()
    note = f"note: {NOT_EXAMINED.replace('1 container', '2 containers')}, Tool/2.0-1\n"
    for option in ("--deep", "--images"):
        said = ebsif(*command, option)
        assert said.out.endswith(f"containers/Tool.yaml: {note}")
        assert said.err == "2 containers: nothing is wrong\n"
    assert ebsif(*command, "--images", "--format", "github").out.startswith("::notice file=")
    assert not ebsif(*command).out


def test_an_image_that_can_not_be_inspected(place, tmp_path, monkeypatch, ebsif):
    """I-03: a damaged one is a finding; without a runtime there is one message, not one for each image."""
    settings = place(HEAD, f"{SITE}images: {{directories: [{{path: {tmp_path}}}]}}\n")
    (tmp_path / "tool-1.0.sif").write_text("")
    monkeypatch.setattr(contents, "inspect", lambda path: inspection.check_file(tmp_path))
    monkeypatch.setattr(sites, "inspect", contents.inspect)
    assert "is a directory, not an image" in findings(settings, quick=True, deep=True)[-1].text
    monkeypatch.setenv("PATH", "/none")
    said = ebsif("check", "--deep", "--quick", "--site", "mine", "--catalog", str(tmp_path / "sites"), status=1)
    assert said.out.startswith("error: neither apptainer nor singularity is on PATH: run this where")


# --- files that add to another one


def test_a_file_that_adds_to_the_projects(tmp_path):
    """The file contains one's own records; the project's families and containers stay, and follow updates."""

    def write(folder, text):
        path = tmp_path / folder / "containers/Tool.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return path

    project = write("project", HEAD)
    own = write(
        "own",
        "name: Tool\nextends: true\nfamilies:\n  more: {extends: tool, init: none}\ncontainers:\n"
        "  - {family: tool, version: 2.0, date: 1}\n  - {family: more, version: 3.0, date: 1}\n",
    )
    directories = (tmp_path / "own", tmp_path / "project")
    assert reading.files(*directories) == [own, project]

    def read():
        return reading.read(site.read("local"), *directories)

    places = [(one.version, one.path, one.line_of()) for one in read()]
    assert places == [("1.0", project, 9), ("2.0", own, 6), ("3.0", own, 7)]
    assert [one.init for one in read()] == ["image", "image", "none"]
    project.write_text(HEAD.replace("init: image", "init: conda-manual"))
    assert [one.init for one in read()] == ["conda-manual", "conda-manual", "none"]
    (document,) = reading.documents(*directories)
    assert [record.version for record in document.containers] == ["1.0", "2.0", "3.0"]
    own.write_text(own.read_text().replace("family: more", "family: nothing"))
    with pytest.raises(DocumentError, match=r"Tool.yaml:7: containers, entry 2, family: unknown family 'nothing'"):
        read()
    # I-11: only the mistake in the extended file, without which the other one can't be judged
    project.write_text(HEAD.replace("init: image", "init: imag"))
    problems = []
    reading.read(site.read("local"), *directories, problems=problems)
    assert [(one.path, one.line) for one in problems] == [(project, 7)]
    own.write_text("name: Tool\nfamilies: {a: {}}\ncontainers: []\n")
    assert read() == []
    own.write_text("name: Tool\ncontainers:\n  - {family: tool, version: 2.0}\n")
    with pytest.raises(DocumentError, match=r"Tool.yaml:3: .*'tool' \(known: none; 'extends: true' adds to the file"):
        read()


def test_a_file_that_is_not_read(tmp_path):
    """Files that aren't read are reported, and the easyconfigs of their records aren't called obsolete."""
    first, second, base = (tmp_path / name for name in ("one/mine", "two/mine", "one/base"))
    more = "name: Tool\nextends: true\ncontainers:\n  - {family: tool, version: 2.0, date: 1}\n"
    written = [(first / "containers/Tool.yaml", HEAD), (first / "containers/Other.yml", HEAD)]
    written += [(second / "containers/Tool.yaml", more), (second / "containers/README.md", "")]
    for path, text in (*written, (base / "containers/Tool.yaml", more)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    problems = []
    read = reading.read(site.read("local"), first, second, base, problems=problems)
    assert [one.version for one in read] == ["1.0"]
    assert [(one.path, one.text.partition(":")[0]) for one in problems] == [
        (first / "containers/Other.yml", "isn't read, because its name doesn't end in .yaml"),
        (second / "containers/Tool.yaml", f"isn't read, because {first}/containers/Tool.yaml replaces it"),
    ]
    (first / "containers/Other.yml").unlink()
    assert len(reading.read(site.read("local"), second, first)) == 2


def test_doctor_reads_the_site(place, tmp_path, monkeypatch, ebsif):
    """`doctor` reads catalog and image directories of the chosen site, and reports errors in its profile."""
    monkeypatch.setattr("ebsif.installed.doctor.examine", lambda _: [])
    (tmp_path / "root/here").mkdir(parents=True)
    profile = (
        f"{SITE}images:\n  root: /nowhere\n  root_variable: ROOT\n  directories:\n    - {{path: here}}\n"
        "    - {path: gone, stability: moving}\n    - {path: 'of-{version}'}\n"
    )
    place(profile=profile)
    # as configured
    (tmp_path / "config.yaml").write_text(f"catalogs: [{tmp_path}/sites]\nsite: mine\n")
    monkeypatch.setenv("EBSIF_CONFIG", str(tmp_path / "config.yaml"))
    arguments = ["doctor"]
    monkeypatch.setenv("ROOT", str(tmp_path / "root"))
    assert ebsif(*arguments).out.splitlines() == [
        "ok: site: mine: 1 container",
        f"ok: images: {tmp_path}/root/here, stable",
        f"note: images: {tmp_path}/root/gone, moving: not on this machine",
    ]
    place(profile=f"{SITE}gpu: amd\n")
    assert "site.yaml:3: gpu: should be" in ebsif(*arguments, status=3).err


def test_a_variable_names_the_directory_of_images(place, tmp_path, monkeypatch):
    """Commands look for images where the module and eb do: the variable comes first, if it has a value."""
    settings = place(
        profile=f"{SITE}images:\n  root: /nowhere\n  root_variable: ROOT\n  directories:\n"
        "    - {path: here}\n    - {path: links, stability: moving}\n"
    )
    profile = settings.site()
    (container,) = settings.containers(profile)
    for value, root in ((str(tmp_path), tmp_path), ("", Path("/nowhere"))):
        monkeypatch.setenv("ROOT", value)
        searched = [("stable", root / "here"), ("moving", root / "links")]
        assert container.image_places == [(kind, folder / "tool-1.0.sif") for kind, folder in searched]
        assert places_of(profile, []) == [ImagePlace(str(folder), kind) for kind, folder in searched]
        assert current_root(easyconfig.parameters(container)["image_root"]) == str(root)
        with pytest.raises(AddingError, match="directory whose links move"):
            check_place(root / "links/tool-1.0.sif", profile, meant=False)
