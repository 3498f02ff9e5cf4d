"""Ten installed modules work; then something breaks, and `ebsif doctor --installed` says what, and nothing else."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zipfile

import pytest
from support import heed_signals, make_wheel, record_of, write_program

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
        easyconfig = root / f"easybuild/Example-1.0-{like}.eb"
        replace(easyconfig, easyconfig.read_text().replace(f"'-{like}'", f"'-{name}'"))
        easyconfig.rename(easyconfig.with_name(f"Example-1.0-{name}.eb"))
        text = (self.site.modules / f"Example/1.0-{like}.lua").read_text()
        (self.site.modules / f"Example/1.0-{name}.lua").write_text(re.sub(rf"1\.0-{like}\b", f"1.0-{name}", text))
        return root

    def write_profile(self, **values):
        """Write the profile of the site."""
        self.profile.write_text(json.dumps({"name": "here", "description": "A site", **values}))

    def follow(self, text, ending=""):
        """Run the command in a printed advice, with EasyBuild configured as at the site."""
        command = re.search("`([^`]+)`", text).group(1)
        options = dict(one[2:].partition("=")[::2] for one in self.site.eb_options if "=" in one)
        variables = {f"EASYBUILD_{name.upper().replace('-', '_')}": value for name, value in options.items()}
        flags = [one[2:] for one in self.site.eb_options if "=" not in one]
        variables.update(
            {
                f"EASYBUILD_{one.removeprefix('disable-').upper().replace('-', '_')}": "0"
                if one.startswith("disable-")
                else "1"
                for one in flags
            }
        )
        return self.site.bash(command + ending, **variables)

    def doctor_of(self, *arguments):
        """Return the command that examines modules (list)."""
        place = ["--site", "here", "--catalog", self.profile.parents[1]]
        return ["ebsif", "doctor", "--json", *place, "--installed", *arguments]

    def doctor(self, *arguments, **environment):
        """Return exit status and findings (level, subject, text), apart from those that all is well."""
        command = self.doctor_of(*(arguments or [self.site.prefix / "eb"]))
        result = self.site.run(command, check=False, **environment)
        assert result.stdout.startswith("["), result.stderr
        findings = [
            (one["level"], one["subject"].partition("1.0-")[2] or one["subject"], one["text"])
            for one in json.loads(result.stdout)
        ]
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
    """I-03, I-04, I-12, S001-18: seven breakages are found at once; after the printed advice, all is well."""
    site, fabric, central = modules.site, modules.fabric, modules.central
    bound = modules.add("bound", optional_binds=[str(fabric / LIBRARY)])
    modules.add("driver", image_packages=["numpy==2.0", "torch==2.7.1+rocm6.2.4"])
    truncated, replaced, unpacked = (
        modules.add(name, like)
        for name, like in (("truncated", "writable"), ("replaced", "writable"), ("unpacked", "squashed"))
    )
    wheel = modules.add("wheel", "writable", image_packages=["torch==2.8.0+rocm6.4"])
    image = shutil.copy2(bound / "example.sif", central / "example.sif")
    mounted = modules.add("mounted", image={"kind": "reference", "source": str(image), "resolved": str(image)})
    (mounted / "example.sif").unlink()
    settings = mounted / "share/ebsif/module.conf"
    replace(settings, settings.read_text().replace("image ./example.sif", f"image {image}"))
    modules.add("untouched")
    modules.write_profile(driver_rocm=["6.1", "7.0"])
    assert len(list(modules.software.iterdir())) == 10
    status, found, everything = modules.doctor()
    assert (status, found) == (0, [])
    notes = {subject: text for level, subject, text in everything if level == "note"}
    assert "checked" in notes["GPU"] + notes["network"] and "only this node" in notes["nodes"]

    (fabric / LIBRARY).rename(fabric / "libfast.so.2")
    modules.write_profile(driver_rocm=["6.3", "7.0"])
    made_from = record_of(truncated)["easyconfig"]
    content = (truncated / "example.sif").read_bytes()
    replace(truncated / "example.sif", content[:-4096])
    replace(replaced / "example.sif", content[:-1] + b"x")
    packed = unpacked / "user-software.squashfs"
    command = ["unsquashfs", "-no-progress", "-dest", unpacked / "user-software", packed]
    subprocess.run(command, check=True, capture_output=True)
    packed.unlink()
    packages = next(wheel.glob("user-software/venv/*/lib/python3*/site-packages"))
    with zipfile.ZipFile(make_wheel(tmp_path, "nvidia_nccl_cu12", "2.26.2")) as archive:
        archive.extractall(packages)
    central.rename(tmp_path / "elsewhere")
    found = problems(modules)
    expected = {
        "bound": ("error", f"(there is {fabric}/libfast.so.2 now): put it back", "eb --rebuild"),
        "driver": ("error", "ROCm 6.2 is not supported by the driver of here", "ebsif upgrade"),
        "truncated": ("error", "was truncated", f"eb --rebuild {truncated}/easybuild/"),
        "replaced": ("error", "its SHA256 is", f"eb --rebuild {replaced}/easybuild/"),
        "unpacked": ("warning", "is a directory now", "make-squashfs"),
        "wheel": ("warning", "user software has packages for CUDA (nvidia-nccl-cu12 2.26.2)", "pip uninstall"),
        "mounted": ("error", "is the file system mounted?", "eb --rebuild"),
    }
    assert found.keys() == expected.keys(), found
    for name, (level, what, remedy) in expected.items():
        assert found[name][0] == level and what in found[name][1] and remedy in found[name][1], found[name]

    # as a person reads it
    command = ["ebsif", "doctor", "--site", "here", "--catalog", modules.profile.parents[1], "--installed", truncated]
    text = site.run(command, check=False)
    assert text.returncode == 1 and "1 module checked: 1 error" in text.stderr

    # the advice: commands as printed
    (fabric / "libfast.so.2").rename(fabric / LIBRARY)
    (tmp_path / "elsewhere").rename(central)
    replace(replaced / "example.sif", content)
    for name in ("truncated", "unpacked", "wheel"):
        modules.follow(found[name][1])
    modules.follow(found["driver"][1].partition("and remove this module with ")[2], " --yes")
    assert problems(modules) == {}
    assert len(list(modules.software.iterdir())) == 9
    # E-06: `ebsif remove` finds the easyconfig, although the module was installed again from its own copy
    assert record_of(truncated)["easyconfig"] == made_from


def test_the_node(modules, installed_once, tmp_path):
    """I-04: another runtime in front of the one with which modules were installed; a module that doesn't load."""
    modules.write_profile()
    root = modules.software / "1.0-squashed"
    front = tmp_path / "front"
    front.mkdir()
    paths = {"PATH": f"{front}:{modules.site.environment['PATH']}"}
    for text, expected in (
        ("echo 'apptainer version 0.9'", "(apptainer version 0.9) instead of"),
        ("exit 127", "doesn't run, and modules use it instead of"),
    ):
        write_program(front / "apptainer", f"#!/bin/sh\n{text}\n")
        found = problems(modules, root, **paths)
        assert found.keys() == {"container runtime"}
        assert expected in found["container runtime"][1] and f"take {front} off PATH" in found["container runtime"][1]
    # as the advice says
    paths["PATH"] = paths["PATH"].replace(f"{front}:", "")
    # neither the caller's user software nor a module of the same name elsewhere counts
    paths.update(EBSIF_USER_SOFTWARE="relative", MODULEPATH=installed_once.site.modules)
    assert problems(modules, root, **paths) == {}
    with (modules.site.modules / "Example/1.0-squashed.lua").open("a") as file:
        file.write('LmodError("This container needs /pfs/x. Is the file system mounted?")\n')
    assert problems(modules, root, **paths)["squashed"][1] == (
        "it can't be loaded: This container needs /pfs/x. Is the file system mounted?"
    )


def test_packages_that_can_not_be_imported(modules):
    """S001-18, I-02: what the record names is imported; what is gone or broken is found; so are RCCL's plugins."""
    modules.write_profile(gpu="rocm", binds={"optional": ["/nowhere/libcxi.so.1"]})
    root = modules.add(
        "broken", "writable", venv_packages=["byhand==1.0", "gone==1.0"], image_packages=["torch==2.7.1+rocm6.2"]
    )
    packages = next(root.glob("user-software/venv/*/lib/python3*/site-packages"))
    info = packages / "byhand-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: byhand\nVersion: 1.0\nRequires-Dist: nothing-like-this; extra == 'all'\n")
    (info / "RECORD").write_text("byhand.py,,\nbyhand-1.0.dist-info/METADATA,,\n")
    (packages / "byhand.py").write_text("import nothing_like_this\n")
    _, found, shown = modules.doctor(root)
    assert [one[0] for one in found] == ["warning", "warning"], found
    assert any(
        level == "note" and "byhand in user software can only be imported together with nothing_" in text
        for level, _, text in shown
    )
    (info / "METADATA").write_text("Name: byhand\nVersion: 1.0\nRequires-Dist: nothing-like-this>=1\n")
    _, found, _ = modules.doctor(root)
    assert [one[0] for one in found] == ["error", "warning", "warning"], found
    assert "byhand in user software can't be imported (ModuleNotFoundError" in found[0][2]
    assert "gone: in the record" in found[1][2]
    # G-05: it has no name of an extension yet
    assert "`ebsif lock Example/1.0-broken --format eb --name mine`" in found[1][2]
    assert found[2][2].startswith("RCCL has no plugin for Slingshot")
    # one in a package of user software
    (packages / "plugins/lib").mkdir(parents=True)
    (packages / "plugins/lib/librccl-net.so").write_text("")
    (packages / "byhand.py").write_text("import os; print('said'); os.abort()\n")
    _, found, _ = modules.doctor(root)
    assert "byhand in user software can't be imported (Python crashes (signal 6))" in found[0][2]


def test_interrupted(modules, tmp_path):
    """I-04: Ctrl-C ends the doctor at once, and leaves no container behind."""
    modules.write_profile()
    root = modules.add("hangs")
    started = tmp_path / "started"
    program = next(name for name in (root / "bin/container-exec", root / "bin/start-shell") if name.exists())
    replace(program, f"#!/bin/sh\necho $$ >'{started}.unfinished'\nmv '{started}.unfinished' '{started}'\nsleep 300\n")
    program.chmod(0o755)
    command = ["ebsif", "doctor", "--site", "here", "--catalog", modules.profile.parents[1], "--installed", root]
    with subprocess.Popen(
        command,
        env=modules.site.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=heed_signals,
    ) as doctor:
        while not started.exists():
            assert doctor.poll() is None, doctor.communicate()
            time.sleep(0.05)
        os.killpg(doctor.pid, signal.SIGINT)
        said, _ = doctor.communicate(timeout=300)
    assert (doctor.returncode, b"Traceback" in said) == (130, False), said
    with pytest.raises(ProcessLookupError):
        os.killpg(int(started.read_text()), 0)


@pytest.mark.nightly
def test_two_nodes(modules, cluster):
    """S002-20: in a job on two nodes, ranks of a module communicate, or the error says so."""
    modules.write_profile()
    root = modules.add("nodes", "writable")
    words = ["salloc", "--quiet", "--nodes=2", *modules.doctor_of(root)]
    result = modules.site.run(words, check=False, **cluster.environment)
    assert result.returncode == 0, result
    script = root / "runscripts/conda-python-distributed"
    for where, expected in (
        ("true", "two ranks on one node can't communicate"),
        ("[[ $SLURM_NNODES == 2 ]]", "one node works, but 2 nodes don't"),
    ):
        replace(
            script,
            script.read_text().replace("\n", f"\n{where} && export MASTER_ADDR=nowhere.invalid\n", 1)
            if "nowhere.invalid" not in script.read_text()
            else script.read_text().replace("true &&", f"{where} &&"),
        )
        script.chmod(0o755)
        result = modules.site.run(words, check=False, **cluster.environment)
        (problem,) = [one["text"] for one in json.loads(result.stdout) if one["level"] == "error"]
        assert problem.startswith(expected), result
