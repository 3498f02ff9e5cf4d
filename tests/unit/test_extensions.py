"""`ebsif extend` of installed modules: packages that come, go and keep their versions. No image is needed."""

import json
import shutil
from argparse import Namespace

import pytest
from easybuild.easyblocks.generic.container.lockfile import Record
from ebsif.cli import main
from ebsif.environments import repeating
from ebsif.environments.extending import ExtendingError
from ebsif.installed.names import Names
from prefixes import BASE, EASYCONFIG, LATER, MINE, OTHER


@pytest.fixture
def prefix(eb_prefix):
    """The prefix of EasyBuild, in place of that of the tests that install."""
    return eb_prefix


def names():
    """The names in the example catalogue."""
    return Names(Namespace(site=None, catalogue=[]))


def test_what_an_installation_says_about_its_image(prefix, tmp_path, capsys):
    """E-12: all packages of the image and the exact Python, beyond what the catalogue knows."""
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [python=3.11, numpy=1.26, einops]\n")
    command = ["extend", BASE, "-r", "environment.yml", "--name", "x", "-n"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "requirements = ['numpy==1.26.*', 'einops']\n" in said.out
    assert said.err == ""
    prefix.install(BASE, versions={"python": "3.11.4"})
    assert main(command) == 0
    said = capsys.readouterr()
    assert "requirements = ['einops']\n" in said.out
    assert said.err == "ebsif: environment.yml: the versions in the image are used: numpy 2.0, not numpy=1.26\n"
    path.write_text("dependencies: [python=3.12, einops]\n")
    assert main(command) == 3
    assert "asks for python=3.12, but the image has Python 3.11.4: choose a container" in capsys.readouterr().err


class Extension:
    """An installed extension of packages that need each other, and what `ebsif extend` makes of it."""

    def __init__(self, prefix, capsys, monkeypatch):
        monkeypatch.setattr("time.strftime", lambda _: "20261122")
        self.prefix, self.capsys, self.monkeypatch = prefix, capsys, monkeypatch
        # nothing in user software needs http: a package of the image does, with an extra
        self.root = self.install("requirements = ['greeting>=1', 'numpy', 'rich']\n",
                                 ["greeting", "hello", "rich", "http"])
        self.needs("greeting", "hello>=1", "extra; extra == 'more'")
        self.needs("rich", "hello")

    def install(self, requirements, names, module=MINE, **record):
        """Install a module with packages of version 1.0; return its directory."""
        text = EASYCONFIG.split("requirements = ")[0] + requirements + "moduleclass = 'ai'\n"
        suffix = module.partition("-")[2]
        text = text.replace("cpu-python-3.11-singularity-20261121-mine-20261121", suffix)
        return self.prefix.install(module, [f"{name}==1.0" for name in names], text, **record)

    def needs(self, name, *requirements):
        """Write what an installed package needs into its metadata."""
        (path,) = self.root.glob(f"user-software/**/{name}-*.dist-info/METADATA")
        path.write_text(path.read_text() + "".join(f"Requires-Dist: {one}\n" for one in requirements))

    def extend(self, *arguments, status=0):
        """Return the parameters of the easyconfig that is shown, and what is said besides."""
        self.capsys.readouterr()
        assert main(["extend", *arguments, "-n"]) == status
        shown = self.capsys.readouterr()
        values = {"SYSTEM": "SYSTEM"}
        exec(shown.out, values)
        return values, shown.err


@pytest.fixture
def extension(prefix, capsys, monkeypatch):
    """An extension of the example in a prefix."""
    return Extension(prefix, capsys, monkeypatch)


def test_packages_are_added_and_all_others_keep_their_versions(extension, capsys):
    """E-03: one command without a file; a new module; other versions only of what is named and what that needs."""
    values, _ = extension.extend("mine", "--add", "lightly", "greeting")
    assert values["requirements"] == ["greeting>=1", "numpy", "rich", "lightly"]
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "http==1.0", "rich==1.0"]
    assert values["versionsuffix"].endswith("-20261121-mine-20261122")
    values, _ = extension.extend("mine", "--add", "rich>=2", "flash-attn")
    assert values["constraints"] == ["greeting==1.0", "http==1.0"]
    assert [stage["requirements"] for stage in values["requirements"]] == [
        ["greeting>=1", "numpy", "rich>=2"], ["ninja", "packaging", "setuptools", "wheel"], ["flash-attn"]]
    extension.prefix.install(LATER)
    values, _ = extension.extend(MINE, "--add", "lightly")
    assert values["versionsuffix"].endswith("-mine-20261122.2")
    assert extension.extend(MINE, "--add", "x", "--rebuild")[0]["versionsuffix"].endswith("-mine-20261121")
    assert main(["extend", MINE, "--add", "numpy", "-n"]) == 0
    said = capsys.readouterr().err
    assert "numpy 2.0 is in the image already\n" in said and "has these packages already: nothing to do" in said
    for wrong, expected in (("a b", "--add 'a b' is not a requirement"), ("./a.whl", "it does not exist")):
        assert expected in extension.extend(MINE, "--add", wrong, status=3)[1]


def test_another_version_of_a_package_with_extras(extension):
    """E-03: it keeps its extras, unless others are asked for, and so what they need, in the image's Python."""
    extension.root = extension.install("requirements = ['greeting[more]>=1']\n", ["greeting", "hello", "rich", "http"],
                                       OTHER, versions={"python": "3.30.1"})
    extension.needs("greeting", "rich; extra == 'more' and python_version >= '3.30'",
                    "http; extra == 'more' and python_version < '3.30'")
    values, _ = extension.extend("other", "--add", "greeting==2.0")
    assert values["requirements"] == ["greeting[more]==2.0"]
    assert values["constraints"] == ["hello==1.0", "http==1.0"]
    assert extension.extend("other", "--add", "greeting[less]==2.0")[0]["requirements"] == ["greeting[less]==2.0"]


def test_a_locked_package_gets_another_version(extension):
    """E-03, E-12: without a hash in a stage of its own, before those with hashes, as pip demands; else in its place."""
    line, other = (f"{name}==1.0 --hash=sha256:{'a' * 64}" for name in ("greeting", "hello"))
    extension.install(f"requirements = {[line, other]}\n", ["greeting", "hello"], OTHER)
    assert "with a hash: give the new one, too (--add 'greeting==VERSION --hash=sha256:...')" in extension.extend(
        "other", "--add", "greeting>=2", status=3)[1]
    newer = line.replace("==1.0", "==2.0")
    values, _ = extension.extend("other", "--add", newer, "rich")
    assert [stage["requirements"] for stage in values["requirements"]] == [[newer, other], ["rich"]]
    assert "greeting==1.0" not in values["constraints"]


def test_packages_are_removed_with_what_only_they_need(extension):
    """E-03: what others need stays; packages of the image, of others and mistyped ones are named as such."""
    values, said = extension.extend("mine", "--remove", "Greeting")
    assert values["requirements"] == ["numpy", "rich"]
    assert values["constraints"] == ["hello==1.0", "http==1.0", "rich==1.0"]
    assert "also removed" not in said
    extension.needs("greeting", "byhand")
    extension.prefix.add(extension.root, "byhand", "1.0")
    record = json.loads((extension.root / "share/ebsif/lock.json").read_text())
    record["venv_packages"].append("byhand==1.0")
    (extension.root / "share/ebsif/lock.json").write_text(json.dumps(record))
    said = extension.extend("mine", "--remove", "greeting", "numpy")[1]
    assert "also removed, because nothing else needs them: byhand 1.0" in said
    assert "numpy stays, because it is in the image" in said
    for name, expected in (("hello", "hello can't be removed alone: greeting and rich need it"),
                           ("ritch", "has no package ritch; did you mean rich?"),
                           ("setuptools", "has no package setuptools")):
        assert expected in extension.extend("mine", "--remove", name, status=3)[1], name
    assert "nothing would be left of" in extension.extend("mine", "--remove", "greeting", "numpy", "rich", status=3)[1]
    assert "--remove changes an extension" in extension.extend("PyTorch/2.13.0", "--remove", "x", status=3)[1]
    extension.install("requirements = [{'name': 'build tools', 'requirements': 'ninja'}, {'name': 'b', 'requirements': "
                      "'flash-attn', 'no_build_isolation': True}, {'name': 'c', 'requirements': 'rich'}]\n",
                      ["ninja", "flash-attn", "rich"], OTHER)
    assert extension.extend("other", "--remove", "flash-attn")[0]["requirements"] == [
        {"name": "c", "requirements": ["rich"]}]


def test_requirements_are_replaced(extension, tmp_path):
    """E-03, use D5: from a changed file; the same file changes nothing."""
    (tmp_path / "r.txt").write_text("greeting>=1\nnumpy\nrich  # mine\n")
    assert main(["extend", "mine", "-r", "r.txt"]) == 0
    assert "has these packages already: nothing to do" in extension.capsys.readouterr().err
    (tmp_path / "r.txt").write_text("rich\nlightly\n")
    values, _ = extension.extend("mine", "-r", "r.txt", "--rebuild")
    assert values["requirements"] == ["rich", "lightly"]
    assert values["constraints"] == ["hello==1.0", "http==1.0", "rich==1.0"]
    # with the same packages, too
    assert extension.extend("mine", "--rebuild")[0]["requirements"] == ["greeting>=1", "numpy", "rich"]


def test_other_requirements_on_the_same_day(extension, tmp_path):
    """
    N1, E-03, E-08, use D5: on a container, too, they are a new module with a number; the same ones change nothing.

    Packages that were added to the container by hand are not part of it, so they are named, unless they are asked for.
    """
    def extend(lines, *more):
        (tmp_path / "r.txt").write_text(lines)
        assert main(["extend", BASE, "-r", "r.txt", "--name", "new", *more]) == 0
        return extension.capsys.readouterr()

    def install(date):
        path = tmp_path / f"{BASE.replace('/', '-')}-new-{date}.eb"
        extension.prefix.install(f"{BASE}-new-{date}", text=path.read_text())
        path.unlink()

    name = f"{BASE.replace('/', '-')}-new-20261122"
    extension.prefix.add(extension.prefix.install(BASE), "hand", "1.0")
    # easyconfigs that are not installed; --rebuild replaces one
    assert extend("lightly\n").out.startswith(f"{name}.eb\n")
    installed = []
    with extension.monkeypatch.context() as patch:
        patch.setattr("ebsif.environments.outcome.install", lambda path, *_: installed.append(path.name) or 0)
        extend("rich\n", "--rebuild", "-o", ".")
    assert installed == [f"{name}.eb"]
    first = extend("rich\n")
    assert first.err.startswith(
        f"ebsif: {BASE} has packages that were added by hand, which are not taken along: hand==1.0 (to add them once "
        "it is installed: ebsif extend new --add hand==1.0 --install)\n")
    assert "by hand" not in extend("rich\nhand\n", "-n").err
    assert first.out == extend("rich\n").out
    assert extend("lightly\n").out.startswith(f"{name}.2.eb\n")
    install("20261122")
    install("20261122.2")
    # of installations, the newest is compared
    same = extend("lightly\n")
    assert f"{BASE}-new-20261122.2 has these packages already: nothing to do (--rebuild" in same.err
    assert same.err.endswith(
        f"load it with: module use {extension.prefix.modules} && module load {BASE}-new-20261122.2\n")
    assert extend("rich\n").out.startswith(f"{name}.3.eb\n")
    assert extend("rich\n", "--rebuild", "-n").out.count("new-20261122.2'") == 1
    assert extend("rich\n", "--date", "20261122", "-n").out.count("new-20261122'") == 1
    extension.prefix.add(extension.root, "hand", "1.0")
    assert main(["upgrade", MINE, BASE, "-n"]) == 0
    said = extension.capsys.readouterr().err
    assert "to add them once it is installed: ebsif extend mine --add hand==1.0" in said


def test_a_name_that_is_taken(extension, tmp_path):
    """
    User trial, E-03: packages added to a container under a name that has others don't silently take its place.

    A file says all that the extension has, so it replaces the packages, and what is missing is named.
    """
    extension.install("requirements = ['greeting>=1', 'numpy']\n", ["greeting"], LATER)
    for options in ((), ("--rebuild",), ("--date", "20261130")):
        said = extension.extend(BASE, "--add", "rich", "numpy>=2", "--name", "mine", *options, status=3)[1]
        assert said == (f"ebsif: `mine` exists ({LATER}); to add to it: ebsif extend mine --add rich 'numpy>=2'; "
                        "otherwise choose another --name\n")
    assert main(["extend", BASE, "--add", "rich", "--name", "mine", "--check"]) == 3
    assert main(["extend", BASE, "--add", "rich", "--name", "mine"]) == 3
    assert not list(tmp_path.glob("*.eb"))
    extension.capsys.readouterr()
    # nothing is lost, or it is the name of another extension
    for packages, name in ((["Greeting", "numpy", "rich"], "mine"), (["rich"], "more"), (["rich"], "min")):
        values, said = extension.extend(BASE, "--add", *packages, "--name", name)
        assert (values["requirements"], said) == (packages, "")
    (tmp_path / "r.txt").write_text("numpy\nrich\n")
    values, said = extension.extend(BASE, "-r", "r.txt", "--name", "mine")
    assert values["requirements"] == ["numpy", "rich"]
    assert said == f"ebsif: the new `mine` is made without greeting, which {LATER} was made with\n"
    # on top of another extension
    more = f"{MINE}-more-20261121"
    extension.install("requirements = [{'name': 'requirements', 'requirements': 'greeting>=1\\nnumpy\\nrich'}, "
                      "{'name': 'requirements (more)', 'requirements': 'byhand'}]\n", ["byhand"], more)
    assert f"`more` exists ({more}); " in extension.extend(MINE, "--add", "x", "--name", "more", status=3)[1]


def test_where_the_easyconfigs_of_installed_extensions_are(extension, tmp_path):
    """
    C-04 (user trial): in a directory of the account, or as -o says, not in the current one; none after a failure.

    Files that were there before stay.
    """
    own = tmp_path / ".local/share/ebsif/easyconfigs"

    def files(folder=tmp_path):
        return sorted(path.name for path in folder.iterdir() if path.suffix in (".eb", ".json"))

    def fail(path, *_):
        assert path.exists()
        raise ExtendingError("no space left\nThe log is /tmp/eb-1/easybuild.log")

    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    commands = ["extend", "mine", "--add", "x"], ["extend", "--from-lock", "lock.json", "--name", "theirs"]
    with extension.monkeypatch.context() as patch:
        patch.setattr("ebsif.environments.outcome.install", fail)
        for words in commands:
            extension.capsys.readouterr()
            assert main([*words, "--install"]) == 3
            assert extension.capsys.readouterr().err.endswith(
                "ebsif: no space left\nThe log is /tmp/eb-1/easybuild.log\n")
            assert (files(), files(own)) == (["lock.json"], [])
        assert main(commands[0]) == 0
        before = files()
        assert len(before) == 2
        assert main([*commands[0], "--install", "-o", "."]) == 3
        assert files() == before
    extension.monkeypatch.setattr("ebsif.environments.outcome.install", lambda *_: 0)
    for words in commands:
        assert main([*words, "--install"]) == 0
    assert files() == before
    # the lock is in the installation
    assert [name.removeprefix(BASE.replace("/", "-")) for name in files(own)] == [
        "-mine-20261122.eb", "-theirs-20261122.eb"]
    extension.monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert main([*commands[0], "--install"]) == 0
    assert len(files(tmp_path / "data/ebsif/easyconfigs")) == 1


def test_an_extension_of_an_extension_is_pinned(extension, tmp_path):
    """E-04: to what its base has; its own packages can be removed, those of the base can't."""
    (tmp_path / "more.txt").write_text("byhand\n")
    values, _ = extension.extend("mine", "-r", "more.txt", "--name", "more")
    assert values["requirements"] == [{"name": "requirements", "requirements": ["greeting>=1", "numpy", "rich"]},
                                      {"name": "requirements (more)", "requirements": ["byhand"]}]
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "http==1.0", "rich==1.0"]
    assert "leave out --name more" in extension.extend("mine", "--remove", "rich", "--name", "more", status=3)[1]
    module = f"{MINE}-more-20261121"
    extension.install(f"requirements = {values['requirements']}\n", ["greeting", "hello", "rich", "byhand"], module)
    assert "rich belongs to the module that" in extension.extend(module, "--remove", "rich", status=3)[1]
    (tmp_path / "more.txt").write_text("lightly\n")
    values, _ = extension.extend(module, "-r", "more.txt")
    assert [one["requirements"] for one in values["requirements"]] == [["greeting>=1", "numpy", "rich"], ["lightly"]]
    assert values["versionsuffix"].endswith("-mine-20261121-more-20261122")
    # without its base, all of the packages are its own
    (extension.prefix.modules / f"{MINE}.lua").unlink()
    shutil.rmtree(extension.root)
    values, _ = extension.extend(module, "--remove", "rich")
    assert [one["requirements"] for one in values["requirements"]] == [["greeting>=1", "numpy"], ["byhand"]]


def test_changes_by_hand_are_taken_along(extension):
    """E-08: packages that were added, changed or removed with pip, and what was said about those that can't be."""
    extension.prefix.add(extension.root, "byhand", "3.0")
    (path,) = extension.root.glob("user-software/**/greeting-*.dist-info")
    path.rename(path.with_name("gone"))
    extension.prefix.add(extension.root, "greeting", "0.9")
    (path,) = extension.root.glob("user-software/**/rich-*.dist-info")
    path.rename(path.with_name("gone-too"))
    values, said = extension.extend("mine", "--rebuild")
    assert values["requirements"] == ["greeting==0.9", "numpy", "byhand==3.0"]
    assert values["constraints"] == ["byhand==3.0", "greeting==0.9", "hello==1.0", "http==1.0"]
    assert "rich was removed by hand, so it is left out" in said
    assert "added by hand, which are taken along: byhand==3.0" in said


def test_an_environment_for_another_image(extension, tmp_path):
    """R-06: on a container with another image, what was asked for is installed, in the versions of the lock."""
    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    record = json.loads((tmp_path / "lock.json").read_text())
    record["image"] = {"file": "b.sif", "sha256": "1" * 64}
    record["venv_packages"].append("numpy==1.0")
    (tmp_path / "b.json").write_text(json.dumps(record))
    values, said = extension.extend(MINE, "--from-lock", "b.json", "--name", "theirs")
    assert values["requirements"].split() == ["greeting>=1", "numpy", "rich"]
    # not the version of a package that this image has
    assert values["constraints"] == ["greeting==1.0", "hello==1.0", "rich==1.0", "http==1.0"]
    assert values["versionsuffix"].endswith("-20261121-theirs-20261122")
    assert f"{BASE} has another image than b.json: the packages in b.json are installed in the same versions, except " \
        "those that the image already has" in said


def test_an_environment_of_somebody_else(extension, tmp_path):
    """E-07: the container follows from the image, of a module or the catalogue; else the image is named."""
    assert main(["lock", "mine", "-o", "lock.json"]) == 0
    values, _ = extension.extend("--from-lock", "lock.json", "--name", "theirs")
    name = f"{BASE.replace('/', '-')}-theirs-20261122"
    assert values["requirements"] == {"lock": f"{name}.lock.json"}
    assert values["checksums"] == ["0" * 64]
    assert main(["extend", "--from-lock", "lock.json", "--name", "theirs"]) == 0
    assert json.loads((tmp_path / f"{name}.lock.json").read_text()) == json.loads((tmp_path / "lock.json").read_text())
    assert f"{name}.eb" in extension.capsys.readouterr().out
    assert main(["extend", "--from-lock", "lock.json", "--name", "theirs"]) == 0
    assert f"{name}.eb" in extension.capsys.readouterr().out
    # on the same day, another lock is another module
    record = json.loads((tmp_path / "lock.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**record, "artifacts": {"rich": {}}}))
    extension.capsys.readouterr()
    # nothing is written, least of all elsewhere
    before = sorted(tmp_path.parent.rglob("*.lock.json*"))
    assert main(["extend", "--from-lock", "lock.json", "--name", "x/../../y"]) == 3
    assert "is not valid in a version suffix" in extension.capsys.readouterr().err
    assert sorted(tmp_path.parent.rglob("*.lock.json*")) == before
    assert extension.extend("--from-lock", "b.json", "--name", "theirs")[0]["versionsuffix"].endswith("-20261122.2")
    text = (tmp_path / f"{name}.eb").read_text()
    extension.prefix.install(name.replace("-", "/", 1), text=text, **{key: value for key, value in record.items()
                                                                                     if key != "module"})
    assert main(["extend", "--from-lock", "lock.json", "--name", "theirs"]) == 0
    assert "has these packages already: nothing to do" in extension.capsys.readouterr().err
    record = json.loads((tmp_path / "lock.json").read_text())
    record["image"], record["module"]["name"] = {"file": "b.sif", "sha256": "1" * 64}, "Other"
    (tmp_path / "b.json").write_text(json.dumps(record))
    assert f"the image b.sif of Other/{MINE.partition('/')[2]} is neither in an installed module nor in the " \
        f"catalogue (its SHA256 is {'1' * 64})" in extension.extend("--from-lock", "b.json", "--name", "x", status=3)[1]
    example = names().container("PyTorch/2.13.0")
    same = example.replace(sha256="1" * 64)
    record = Record.of(record)
    assert repeating.base_of(record, [example, same], example.site) is same
    # not one with another image
    with pytest.raises(repeating.MissingImageError):
        repeating.base_of(record, [example.replace(sha256="2" * 64)], example.site)
    assert "venv_name" not in values
    record = json.loads((tmp_path / "lock.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**record, "venv_name": "torch"}))
    assert extension.extend("--from-lock", "b.json", "--name", "x")[0]["venv_name"] == "torch"
    (tmp_path / "b.json").write_text(json.dumps({**record, "stages": []}))
    assert "there is nothing to repeat" in extension.extend("--from-lock", "b.json", "--name", "x", status=3)[1]


def test_an_interpreter_that_a_person_has_edited(prefix, tmp_path, capsys):
    """C-04 (user trial): `ebsif python --write` replaces its own file, but not one that was edited since."""
    root = prefix.install(MINE)
    (root / "interpreter").mkdir()
    (root / "interpreter/python").touch()
    path, command = tmp_path / "bin/python", ["python", MINE, "--write", "bin/python"]
    assert main(command) == main(command) == 0
    assert path.stat().st_mode & 0o111
    written = path.read_text()
    assert written.startswith("#!/bin/bash -p\n# Python of ") and f'\nexec {root}/interpreter/python "$@"\n' in written
    for text in (written.replace("\nexec", "\nexport OMP_NUM_THREADS=1\nexec"), written + "# mine\n", "mine\n"):
        path.write_text(text)
        capsys.readouterr()
        assert main(command) == 3
        what = "exists, and was not created by `ebsif python`" if text == "mine\n" else \
            "was edited since `ebsif python` wrote it"
        assert capsys.readouterr().err == f"ebsif: bin/python {what}: choose another name, or remove it\n"
        assert path.read_text() == text
