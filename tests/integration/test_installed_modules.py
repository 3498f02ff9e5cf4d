"""Ten installed modules work; then something breaks, and `ebsif doctor --installed` says what, and nothing else."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from slurm import NODES, Cluster

LIBRARY = "libfast.so.1"


class Modules:
    """Copies of the installed modules at a site, made with hard links."""

    def __init__(self, installed, folder):
        """Start with the two modules."""
        self.site = installed.copy(folder)
        self.software = self.site.prefix / "eb/software/Example"
        self.central, self.fabric = folder / "central", folder / "fabric"
        self.profile = folder / "sites/here/site.yaml"
        self.profile.parent.mkdir(parents=True)
        self.central.mkdir()
        self.fabric.mkdir()
        (self.fabric / LIBRARY).write_text("")

    def add(self, name, like="squashed", **record):
        """Add a copy of a module under another name, with changes of its record; return its installation directory."""
        root = self.software / f"1.0-{name}"
        subprocess.run(["cp", "-al", self.software / f"1.0-{like}", root], check=True)
        lock = root / "share/ebsif/lock.json"
        content = json.loads(lock.read_text())
        image = {**content["image"], **record.pop("image", {})}
        module = {**content["module"], "versionsuffix": f"-{name}"}
        # not into the file that both share
        replace(lock, json.dumps({**content, **record, "image": image, "module": module}))
        text = (self.site.modules / f"Example/1.0-{like}.lua").read_text()
        (self.site.modules / f"Example/1.0-{name}.lua").write_text(re.sub(rf"1\.0-{like}\b", f"1.0-{name}", text))
        return root

    def write_profile(self, **values):
        """Write the profile of the site."""
        self.profile.write_text(json.dumps({"name": "here", "description": "A site", **values}))

    def doctor(self, *arguments, **environment):
        """Return exit status and findings (level, subject, text), apart from those that all is well."""
        result = self.site.run(
            ["ebsif", "doctor", "--json", "--site", "here", "--catalogue", self.profile.parents[1],
             "--installed", *(arguments or [self.site.prefix / "eb"])], check=False, **environment)
        assert result.stdout.startswith("["), result.stderr
        findings = [(one["level"], one["container"].partition("1.0-")[2] or one["container"], one["text"])
                    for one in json.loads(result.stdout)]
        return result.returncode, [one for one in findings if one[0] not in ("ok", "note")], findings


def replace(path, content):
    """Write a new file in place of one that has hard links."""
    path.unlink()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def problems(modules, *arguments, **environment):
    """Return the problems by subject, of which there is one each; status 1 if there are any."""
    status, found, _ = modules.doctor(*arguments, **environment)
    assert status == (1 if found else 0), found
    assert len({subject for _, subject, _ in found}) == len(found), "\n".join(map(str, found))
    return {subject: (level, text) for level, subject, text in found}


@pytest.fixture
def modules(installed_once, tmp_path):
    """The site with copies."""
    return Modules(installed_once, tmp_path)


def test_ten_modules(modules, tmp_path):
    """I-03, I-04, I-12, S001-18: seven breakages are found at once, with their remedies; repaired, all is well."""
    site, fabric, central = modules.site, modules.fabric, modules.central
    bound = modules.add("bound", optional_binds=[str(fabric / LIBRARY)])
    modules.add("driver", image_packages=["numpy==2.0", "torch==2.7.1+rocm6.2.4"])
    truncated, replaced, unpacked = (modules.add(name) for name in ("truncated", "replaced", "unpacked"))
    wheel = modules.add("wheel", "writable", image_packages=["torch==2.8.0+rocm6.4"])
    image = shutil.copy2(bound / "example.sif", central / "example.sif")
    mounted = modules.add("mounted", image={"kind": "reference", "source": str(image), "resolved": str(image)})
    (mounted / "example.sif").unlink()
    file = site.modules / "Example/1.0-mounted.lua"
    file.write_text(file.read_text().replace('pathJoin(root, "example.sif")', f'"{image}"')
                    .replace('root .. "/example.sif"', f'"{image}"'))
    modules.add("untouched")
    modules.write_profile(driver_rocm=["6.1", "7.0"])
    assert len(list(modules.software.iterdir())) == 10
    assert problems(modules) == {}
    _, _, everything = modules.doctor()
    notes = {subject: text for level, subject, text in everything if level == "note"}
    assert "not looked at" in notes["GPU"] + notes["network"] and "only this one" in notes["nodes"]

    (fabric / LIBRARY).rename(fabric / "libfast.so.2")
    modules.write_profile(driver_rocm=["6.3", "7.0"])
    content = (truncated / "example.sif").read_bytes()
    replace(truncated / "example.sif", content[:-4096])
    replace(replaced / "example.sif", content[:-1] + b"x")
    packed = unpacked / "user-software.squashfs"
    subprocess.run(["unsquashfs", "-no-progress", "-dest", unpacked / "user-software", packed], check=True,
                   capture_output=True)
    packed.rename(tmp_path / "packed")
    packages = next(wheel.glob("user-software/venv/*/lib/python3*/site-packages"))
    metadata = packages / "nvidia_nccl_cu12-2.26.2.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: nvidia-nccl-cu12\nVersion: 2.26.2\n")
    central.rename(tmp_path / "elsewhere")
    found = problems(modules)
    expected = {
        "bound": ("error", f"now there is {fabric}/libfast.so.2", "eb --rebuild"),
        "driver": ("error", "ROCm 6.2 is not supported by the driver of here", "ebsif upgrade"),
        "truncated": ("error", "was truncated", "eb --rebuild"),
        "replaced": ("error", "its SHA256 is", "eb --rebuild"),
        "unpacked": ("warning", "is a directory now", "make-squashfs"),
        "wheel": ("warning", "user software has packages for another kind of GPU (nvidia-nccl-cu12 2.26.2)",
                  "ebsif extend MODULE --remove"),
        "mounted": ("error", "is the file system mounted?", "eb --rebuild"),
    }
    assert found.keys() == expected.keys(), found
    for name, (level, what, remedy) in expected.items():
        assert found[name][0] == level and what in found[name][1] and remedy in found[name][1], found[name]

    # as a person reads it
    text = site.run(["ebsif", "doctor", "--site", "here", "--catalogue", modules.profile.parents[1], "--installed",
                     truncated], check=False)
    assert text.returncode == 1 and "1 module checked: 1 error" in text.stdout
    assert all(len(line) <= 80 or " " not in line.strip() for line in text.stdout.splitlines()), text.stdout

    # the advice
    (fabric / "libfast.so.2").rename(fabric / LIBRARY)
    modules.write_profile(driver_rocm=["6.1", "7.0"])
    for root in (truncated, replaced):
        replace(root / "example.sif", content)
        shutil.copystat(bound / "example.sif", root / "example.sif")
    site.bash("module load Example/1.0-unpacked; make-squashfs && rm -r $CONTAINERROOT/user-software")
    shutil.rmtree(metadata.parent)
    (tmp_path / "elsewhere").rename(central)
    assert problems(modules) == {}


def test_the_node(modules, installed_once, tmp_path):
    """I-04: another runtime in front of the one with which modules were installed; a module that doesn't load."""
    modules.write_profile()
    root = modules.software / "1.0-squashed"
    front = tmp_path / "front"
    front.mkdir()
    paths = {"PATH": f"{front}:{modules.site.environment['PATH']}"}
    for text, expected in (("echo 'apptainer version 0.9'", "(apptainer version 0.9) comes before"),
                           ("exit 127", "doesn't run, and it comes before")):
        (front / "apptainer").write_text(f"#!/bin/sh\n{text}\n")
        (front / "apptainer").chmod(0o755)
        found = problems(modules, root, **paths)
        assert found.keys() == {"container runtime"}
        assert expected in found["container runtime"][1] and f"take {front} off PATH" in found["container runtime"][1]
    (front / "apptainer").unlink()
    # neither the caller's user software nor a module of the same name elsewhere counts
    paths.update(EBSIF_USER_SOFTWARE="relative", MODULEPATH=installed_once.site.modules)
    assert problems(modules, root, **paths) == {}
    with (modules.site.modules / "Example/1.0-squashed.lua").open("a") as file:
        file.write('LmodError("This container needs /pfs/x. Is the file system mounted?")\n')
    assert problems(modules, root, **paths)["squashed"][1] == (
        "it can't be loaded: This container needs /pfs/x. Is the file system mounted?")


def test_packages_that_can_not_be_imported(modules):
    """S001-18: what the record names is imported; what is gone or broken is found."""
    modules.write_profile()
    root = modules.add("broken", "writable", venv_packages=["byhand==1.0", "gone==1.0"])
    packages = next(root.glob("user-software/venv/*/lib/python3*/site-packages"))
    info = packages / "byhand-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: byhand\nVersion: 1.0\n")
    (info / "RECORD").write_text("byhand.py,,\nbyhand-1.0.dist-info/METADATA,,\n")
    (packages / "byhand.py").write_text("import nothing_like_this\n")
    _, found, _ = modules.doctor(root)
    assert [one[0] for one in found] == ["error", "warning"], found
    assert "byhand in user software can't be imported (ModuleNotFoundError" in found[0][2]
    assert "gone: installed according to the record" in found[1][2] and "ebsif freeze" in found[1][2]
    (packages / "byhand.py").write_text("import os; print('said'); os.abort()\n")
    assert "importing byhand ends Python" in problems(modules, root)["broken"][1]


class Divided(Cluster):
    """A cluster whose second node has a file system of its own in a directory, which is empty."""

    def __init__(self, place, hidden):
        super().__init__(place)
        self.hidden = hidden

    def daemon(self, *command, account="root"):
        """Start a daemon; that of the second node sees an empty directory."""
        if command[0] == "slurmd" and command[-1] == NODES[1]:
            command = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.hidden, *command)
        super().daemon(*command, account=account)


def test_two_nodes(modules):
    """I-04, S002-20: a library that is gone on one of two nodes is found there; then the nodes communicate."""
    modules.write_profile()
    place = Path(tempfile.mkdtemp(prefix="ebsif-slurm-"))
    place.chmod(0o755)
    root = modules.add("nodes", optional_binds=[str(modules.fabric / LIBRARY)])
    cluster = Divided(place, modules.fabric)
    try:
        cluster.start()
        words = ["salloc", "--quiet", "--nodes=2", "ebsif", "doctor", "--json", "--site", "here", "--catalogue",
                 modules.profile.parents[1], "--installed", root]
        result = modules.site.run(words, check=False, **cluster.environment)
        assert result.stdout, result.stderr
        found = [one for one in json.loads(result.stdout) if one["level"] in ("error", "warning")]
        assert result.returncode == 1 and len(found) == 1, result
        where = f"on {NODES[1]}, but not on {NODES[0]}: {modules.fabric}/{LIBRARY} was bound"
        assert found[0]["text"].startswith(where)
        # put back on the node
        replace(root / "share/ebsif/lock.json", (root / "share/ebsif/lock.json").read_text().replace(
            str(modules.fabric / LIBRARY), os.devnull))
        result = modules.site.run(words, check=False, **cluster.environment)
        assert result.returncode == 0, result
    finally:
        cluster.stop()
