"""One image, many environments: extensions use the image of their base, which is never copied for them."""

import hashlib
import json
import re
import shlex
import shutil
import stat

from parts import TOOLS, Installed, example_site, wheel_settings
from support import record_of

BASE, FIRST, OTHER, MORE = (
    f"Example/1.0-{name}" for name in ("base", "base-first-1", "base-other-1", "base-first-1-more-2")
)
TEXT = Installed.TEXT
SHOW = 'echo "$SIF"; singularity exec "$SIF" python -c "import greeting; print(greeting.__file__)"'


class Family:
    """A base with an image that only its group may read, two extensions of it, and what eb said of each."""

    def __init__(self, site, image, wheels):
        self.site, self.wheels = site, wheels
        (site.sources / "example.sif").unlink()
        shutil.copy(image, site.sources / "example.sif")
        (site.sources / "example.sif").chmod(0o640)
        self.base = site.easyconfig(TEXT + "requirements = ['hello']\naliases = ['base']\n", suffix="-base")
        text = TEXT + "requirements = ['greeting']\nimage = 'reference'\n"
        others = [site.easyconfig(text, suffix=f"-base-{name}-1") for name in ("first", "other")]
        said = site.eb(self.base, *others, **wheel_settings(wheels)).stdout
        self.said = said.split("== processing EasyBuild easyconfig ")[1:]

    def root(self, module):
        """The installation directory of a module."""
        return self.site.root(module)

    def image(self, module):
        """The image in the installation directory of a module, which need not exist."""
        return self.root(module) / "example.sif"

    def record(self, module):
        """What the record of a module says of its image."""
        return record_of(self.root(module))["image"]

    def show(self, module):
        """Load a module; return its image and where greeting is."""
        return self.site.bash(f"module load {module} && {SHOW}").stdout.split()


def size_of(root):
    """The bytes on disk of what is in this directory."""
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


def check_that_extensions_have_no_copy(family):
    """E-01: nothing is copied; the recorded digest holds, record and help name it and whose image it is."""
    image = family.image(BASE)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    assert stat.S_IMODE(image.stat().st_mode) == 0o640
    for module, said in zip((FIRST, OTHER), family.said[1:]):
        assert not family.image(module).exists()
        assert f"size and time of the image match the record of {BASE}" in said
        assert "copying" not in said
        record = family.record(module)
        assert (record["kind"], record["origin"], record["sha256"]) == ("reference", BASE, digest)
        assert size_of(family.root(module)) < 10e6
        shown = family.site.bash(f"module help {module} 2>&1").stdout
        assert f"The SHA256 of the image is {digest}." in shown
        assert BASE in shown.split("The module has no copy: it uses the image of the module ")[1].split("\n")[0]
        used, greeting = family.show(module)
        assert used == str(image)
        assert greeting.startswith("/user-software/")
    assert "origin" not in family.record(BASE)
    check_the_inventory(family)


def check_the_inventory(family):
    """I-01, I-03: `ebsif installed` finds the modules as eb left them, and whose image they use."""
    prefix = family.site.prefix / "eb"
    everything = json.loads(family.site.run(["ebsif", "installed", prefix, "--json", "--verify"]).stdout)
    assert everything["findings"] == []
    found = {one["module"]: one for one in everything["installations"]}
    assert found.keys() == {BASE, FIRST, OTHER}
    assert found[BASE]["image"]["used_by"] == [FIRST, OTHER]
    assert {one["image"]["state"] for one in found.values()} == {"verified"}
    assert {str(one["user_software"]) for one in found.values()} == {"{'state': 'packed', 'changed': False}"}
    said = family.site.bash(f"ebsif installed {prefix} --has 'greeting>=1'").stdout
    assert said == f"{OTHER}\n  greeting 1.0 (user software)\n{FIRST}\n  greeting 1.0 (user software)\n"


def check_an_extension_of_an_extension(family):
    """E-04, E-01: by the name of its module: the packages of both, the image of the first base, a module of its own."""
    (family.site.work / "more.txt").write_text("byhand\n")
    command = ["ebsif", "extend", FIRST, "-r", "more.txt", "--name", "more", "--date", "2"]
    options = ["--", *family.site.eb_options]
    result = family.site.bash(shlex.join([*command, *options]), **wheel_settings(family.wheels))
    assert "load it with: module load Example/more\n" in result.stderr
    # E-03: packages that are there are not installed again, and the output says so
    assert re.search(r"(?m)^  installing packages .* 2 taken over, 1 package added$", result.stderr)
    assert family.record(MORE)["resolved"] == str(family.image(BASE))
    assert family.record(MORE)["origin"] == BASE
    output = family.site.bash(
        f"module load {MORE} && singularity exec $SIF python -c 'import byhand, greeting, hello; "
        "print(byhand.__name__)'; module load Example/base; echo $SIF"
    ).stdout
    assert output.split() == ["byhand", str(family.image(BASE))]
    # C-04: not in the working directory
    name = f"{MORE.replace('/', '-')}.eb"
    assert not (family.site.work / name).exists()
    text = (family.site.home / ".local/share/ebsif/easyconfigs" / name).read_text()
    assert len(re.findall(r"on\s+top\s+of", text)) == 1
    # from the directory, and from the easyconfig, what is written is the same
    kept = family.root(FIRST) / "easybuild" / f"{FIRST.replace('/', '-')}.eb"
    for place in (family.root(FIRST), kept):
        command[2] = str(place)
        family.site.run([*command, "-o", ".", *options])
        assert (family.site.work / name).read_text() == text


def check_with_a_new_image_of_the_base(family):
    """E-02: extensions load with the image that another installation of the base has put at the same path."""
    image = family.image(BASE)
    shutil.copy2(image, image.with_name("new"))
    image.with_name("new").rename(image)
    assert family.show(FIRST)[0] == str(image)


def check_without_the_image_of_the_base(family):
    """E-02, I-09: who needs it is known; extensions say which image is gone, whose it is, and what to do."""
    site, image = family.site, family.image(BASE)
    aside = image.with_name("aside")
    # in the syntax of the other modules tool as well
    other = TOOLS["EnvironmentModules-Tcl"]()
    tcl = ["--module-only", "--skip-sanity-check", "--modules-tool=EnvironmentModules", "--module-syntax=Tcl"]
    tcl += [f"--installpath-modules={site.prefix}/tcl"]
    command = ["env", *(f"{name}={value}" for name, value in other.environment), "eb", *site.eb_options]
    site.run([*command, *tcl, site.prefix / f"{OTHER.replace('/', '-')}.eb"])

    def load(tool):
        start = f"module use {site.modules}" if tool == site.tool else f"{tool.init}\nmodule use {site.prefix}/tcl/all"
        result = site.bash(f"{start}\nmodule load {OTHER}; echo status $?", check=False)
        return result.stdout.split(), " ".join(result.stderr.split())

    for tool in (site.tool, other):
        assert load(tool)[0] == ["status", "0"]
    image.rename(aside)
    try:
        for tool in (site.tool, other):
            words, said = load(tool)
            assert words[1] != "0"
            assert f"Looked for: {image}. It is the image of {BASE}, which was removed or has another" in said
        code = (
            "import pathlib, sys\nfrom ebsif.eb import framework\nfrom ebsif.installed import removal, search\n"
            "framework.session(tuple(sys.argv[2:]))\n"
            "print(*removal.users_of(pathlib.Path(sys.argv[1]), search.everything()))"
        )
        found = site.run(["python", "-c", code, family.root(BASE), *site.eb_options]).stdout
        # one of them by the name that people type
        assert found.split() == [FIRST, OTHER, "more"]
    finally:
        aside.rename(image)


def test_one_image_for_many_modules(tmp_path, base_image, wheels):
    """E-01, E-02, E-04, I-09: what happens to a base and its extensions, step by step with the same installations."""
    family = Family(example_site(tmp_path, base_image), base_image, wheels)
    check_that_extensions_have_no_copy(family)
    check_an_extension_of_an_extension(family)
    check_with_a_new_image_of_the_base(family)
    check_without_the_image_of_the_base(family)
