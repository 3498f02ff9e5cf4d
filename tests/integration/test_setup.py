"""The set-up scripts do whatever is missing, say so, and do nothing else."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from support import CHECKOUT, attempt, make_wheel, write_program

SCRIPTS = CHECKOUT / "scripts"


def run(command, **environment):
    """Run a script with additional variables."""
    return attempt([str(word) for word in command], env={**os.environ, **environment}, timeout=300)


def test_nothing_is_installed_on_a_prepared_machine():
    """If nothing is missing, set-up says so and installs nothing."""
    result = run([SCRIPTS / "setup-system", "--image", "--tests", CHECKOUT / ".demo" / "environment-modules"])
    assert result.returncode == 0
    assert result.stderr.split() == "nothing is missing on this machine".split()  # noqa: SIM905


def test_programs_for_registries_are_unpacked_for_the_tests(tmp_path):
    """R-01: where they are missing, beside the other parts: those of a newer Debian if the distribution has none."""
    tools, log, parts = tmp_path / "tools", tmp_path / "log", tmp_path / "parts"
    tools.mkdir()
    for name, text in (
        (
            "apt-get",
            f"""echo "$*" >>{log}; case $* in *indextargets*) echo http://mirror.example/debian ;; esac
                [[ $* != *" download "* ]] || touch "${{@: -1}}.deb" """,
        ),
        ("apt-cache", ""),
        ("dpkg-deb", 'mkdir -p "$3/usr/bin"; name=$(basename "$2" .deb); cp /bin/true "$3/usr/bin/$name"'),
    ):
        write_program(tools / name, f"#!/bin/bash\n{text}\n")
    (parts / "usr/lib/x").mkdir(parents=True)
    (parts / "usr/lib/x/modulecmd.tcl").touch()
    shutil.copytree(Path(os.environ["EBSIF_TEST_SSHD"]).parent, parts / "usr/sbin")
    for _ in range(2):
        result = run([SCRIPTS / "setup-system", "--tests", parts], PATH=f"{tools}:{os.environ['PATH']}")
        assert result.returncode == 0, result.stderr
    assert sorted(one.name for one in (parts / "usr/bin").iterdir()) == ["docker-registry", "oras"]
    downloads = [line for line in log.read_text().splitlines() if " download " in line]
    assert [line.split()[-1] for line in downloads] == ["docker-registry", "oras"]
    assert ["Dir::Etc::sourcelist=" in line for line in downloads] == [False, True]


def test_missing_parts_are_named_first(tmp_path):
    """With the parts hidden and no package manager: what is missing, what to do; status 1."""
    tools = programs(tmp_path / "tools", "bash dirname readlink python3 env")
    # have() also looks into sbin directories, which contain none of these
    result = run([SCRIPTS / "setup-system"], PATH=str(tools))
    assert result.returncode == 1 and "missing on this machine, to be installed as root:" in result.stderr
    for part in ("squashfs-tools", "squashfuse", "tcl", "apptainer (the container runtime)"):
        assert part in result.stderr
    assert "install the missing packages with your package manager, then run it again" in result.stderr


def test_missing_packages_are_listed_and_installed_in_a_line_each(tmp_path):
    """What is missing is printed; the output of the package manager isn't."""
    tools = programs(tmp_path / "tools", "bash dirname env grep mktemp paste python3 readlink rm sleep")
    for name, text in (
        ("apt-get", "echo Selecting; echo W: slow >&2"),
        ("apt-cache", "echo apptainer"),
        ("sudo", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'),
    ):
        write_program(tools / name, f"#!/bin/sh\n{text}\n")
    result = run([SCRIPTS / "setup-system"], PATH=str(tools), TMPDIR=str(tmp_path), LMOD_CMD="/bin/true")
    assert result.returncode == 0, result.stderr
    missing, update, install, runtime = result.stderr.splitlines()
    assert missing.startswith("    missing on this machine, to be installed as root: ")
    packages = missing.partition(": ")[2].removesuffix(" apptainer (the container runtime)")
    assert {"squashfs-tools", "squashfuse", "tcl"} <= set(packages.split())
    assert re.fullmatch(r"==> Updating the list of packages \d\.\d s", update)
    assert re.fullmatch(rf"==> Installing {packages} \d\.\d s", install)
    assert re.fullmatch(r"==> Installing the container runtime Apptainer \d\.\d s", runtime)
    assert (result.stdout, list(tmp_path.glob("*.log"))) == ("", [])


def not_cached(folder):
    """Return the path of a copy of build-example-image, in a folder, whose small images nobody has built."""
    scripts = shutil.copytree(SCRIPTS, folder)
    (scripts / "images/busybox.bash").write_text("# another one\nmake_root() { false; }\n")
    return scripts / "build-example-image"


def programs(folder, names):
    """Return a directory with some programs of this machine, by their names in a text, and no others."""
    folder.mkdir()
    for name in names.split():
        (folder / name).symlink_to(shutil.which(name))
    return folder


def test_without_root_and_sudo_the_administrators_command_is_printed(tmp_path):
    """No program is started, and the command for an administrator is complete; an image can be brought."""
    builder = not_cached(tmp_path / "scripts")
    names = "bash cat cut dirname env find mkdir python3 readlink sha256sum sort uname xargs"
    tools = programs(tmp_path / "tools", names)
    (tools / "apt-get").symlink_to(shutil.which("false"))
    settings = {"PATH": str(tools), "XDG_CACHE_HOME": f"{tmp_path}/cache"}
    command = [builder, "--variant", "busybox"]
    result = run(command, **settings)
    assert result.returncode == 1
    expected = f"run: {builder} --variant busybox; or copy the image from another machine to {tmp_path}/cache/"
    assert expected in result.stderr
    brought = Path(result.stderr.split()[-1])
    brought.parent.mkdir(parents=True)
    brought.touch()
    assert run(command, **settings).stdout == f"{brought}\n"
    # with sudo, root builds it
    brought.unlink()
    write_program(tools / "sudo", "#!/bin/sh\nprintf '%s\\n' \"$*\"\n")
    assert run(command, **settings).stdout.endswith(f"-- {builder} --variant busybox\n")
    (tools / "sudo").unlink()
    result = run([SCRIPTS / "setup-system", "--image"], **settings)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith(f"Ask an administrator to run: {SCRIPTS}/setup-system --image")
    assert "==>" not in result.stderr


def test_an_ordinary_account_builds_an_image(tmp_path):
    """A-06: in a user namespace, into its own cache: the files are root's in the image, and can be used."""
    scripts = shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "easyblocks").symlink_to(CHECKOUT / "easyblocks")
    with (scripts / "images/busybox.bash").open("a") as file:
        file.write("# another one\n")
    cache = tmp_path / "cache"
    result = run([scripts / "build-example-image", "--variant", "busybox"], XDG_CACHE_HOME=str(cache))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{cache}/ebsif/images/")
    image = result.stdout.strip()
    assert run(["apptainer", "exec", image, "sh", "-c", "echo works"]).stdout == "works\n"
    assert [path.name for path in Path(image).parent.iterdir() if path.name != "lock"] == ["ebsif-busybox.sif"]


def test_sudo_keeps_settings_by_name(prefix):
    """Root gets the settings for pip and the network; no password appears in a command line."""
    tools = Path(tempfile.mkdtemp(dir=prefix))
    tools.chmod(0o755)
    write_program(tools / "sudo", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    command = ["bash", "-c", f"source {SCRIPTS}/lib.sh; as_root apt-get 'a b'"]
    result = run(
        command, OTHER_VARIABLE="1", PATH=f"{tools}:{os.environ['PATH']}", PIP_INDEX_URL="https://me:secret@example.org"
    )
    preserved, *rest = result.stdout.splitlines()
    assert rest == ["--", "apt-get", "a b"]
    name, value = preserved.split("=")
    assert name == "--preserve-env"
    assert "PIP_INDEX_URL" in value.split(",")
    assert "OTHER_VARIABLE" not in value
    assert "secret" not in result.stdout + result.stderr


def test_a_cached_image_is_reused(tmp_path):
    """The example image is built once; a cached one is found, also from another clone, and not changed."""
    image = os.environ["EBSIF_TEST_BASE_IMAGE"]
    before = Path(image).stat()
    result = run([SCRIPTS / "build-example-image", "--variant", "base"])
    assert result.stdout.strip() == image
    assert Path(image).stat().st_mtime_ns == before.st_mtime_ns
    clone = tmp_path / "clone"
    shutil.copytree(SCRIPTS, clone / "scripts")
    assert run([clone / "scripts/build-example-image", "--cached", "--variant", "base"]).stdout.strip() == image


def test_an_empty_cache_is_status_1(tmp_path):
    """--cached only looks: status 1, no output, nothing created."""
    builder = not_cached(tmp_path / "scripts")
    result = run([builder, "--cached", "--variant", "busybox"], XDG_CACHE_HOME=f"{tmp_path}/cache")
    assert (result.returncode, result.stdout) == (1, "")
    assert not (tmp_path / "cache").exists()


def test_a_step_is_one_line(tmp_path):
    """Each step prints its title and time, in a file without escape codes; its output is in a log, shown on failure."""
    script = f"""
        set -euo pipefail
        source {SCRIPTS}/lib.sh
        broken() {{ seq 30; false; echo not reached; }}
        step "First thing" echo Selecting
        step "Second thing" broken
        echo not reached
    """
    result = run(["bash", "-c", script], TMPDIR=str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    first, second, *end, where, failed = result.stderr.splitlines()
    assert re.fullmatch(r"==> First thing 0\.\d s", first)
    assert (second, end) == ("==> Second thing", [str(number) for number in range(11, 31)])
    # that of the first is gone
    (log,) = tmp_path.iterdir()
    assert log.read_text().split() == [str(number) for number in range(1, 31)]
    assert where == f"    the complete output is in {log}"
    assert re.fullmatch(r"==> FAILED \(exit status 1\) after 0\.\d s: Second thing", failed)
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("where", ["environment", "file"])
def test_binds_for_pip_exist(tmp_path, where):
    """What pip's environment and its files name: only existing paths, each once, in the runtime's syntax."""
    folder, index = tmp_path / "certificates", tmp_path / "mirror/simple"
    folder.mkdir()
    index.mkdir(parents=True)
    (folder / "bundle.crt").touch()
    configuration = tmp_path / "pip.conf"
    if where == "file":
        configuration.write_text(
            f"[global]\nquiet = 2\ncert = {folder}/bundle.crt\nextra-index-url =\n  https://example.org/simple\n"
            f"  file://{index}\n[install]\nfind-links =\n  /does/not/exist\n  {tmp_path}\n"
        )
        settings = {"PIP_CERT": "", "SSL_CERT_FILE": f"{folder}/bundle.crt", "PIP_FIND_LINKS": ""}
    else:
        settings = {
            "PIP_CERT": f"{folder}/bundle.crt",
            "SSL_CERT_FILE": "",
            "PIP_EXTRA_INDEX_URL": f"file://{index}",
            "PIP_FIND_LINKS": f"/does/not/exist {tmp_path}",
        }
    result = run([SCRIPTS / "install-binds"], **settings, REQUESTS_CA_BUNDLE="", PIP_CONFIG_FILE=str(configuration))
    binds = result.stdout.strip().split(",")
    assert len(binds) == len(set(binds))
    assert all(Path(bind).exists() for bind in binds)
    # with the files to which the pages of the index may lead
    assert {str(folder), str(index.parent), str(tmp_path)} <= set(binds)
    assert ("/etc/pip.conf" in binds) == Path("/etc/pip.conf").exists()


def test_images_are_built_with_pips_settings(tmp_path):
    """Where the home directory tells pip to download from holds for an image, too; the environment wins, as for pip."""
    builder = shutil.copytree(SCRIPTS, tmp_path / "scripts") / "build-example-image"
    builder.write_text(builder.read_text().removesuffix('main "$@"\n'))
    configuration = tmp_path / "home/.config/pip/pip.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(
        "[global]\nindex-url = https://mirror.example/a b\nfind-links =\n  /one\n  /two\ntimeout = 60\n"
        "proxy = http://other.example\nrequire-virtualenv = yes\n[install]\ntimeout = 5\n"
    )
    runtime = write_program(
        tmp_path / "runtime", "#!/bin/sh\nenv | grep -E '^PIP_(IND|FIN|TIM|PRO|REQ)' | sort; exit 3\n"
    )
    script = f"source {builder}; runtime={runtime} root={tmp_path}; export_pip_settings; in_root pip || echo $?"
    own = {"HOME": str(tmp_path / "home"), "PIP_PROXY": "http://mine.example"}
    own |= dict.fromkeys(("XDG_CONFIG_HOME", "PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_FIND_LINKS"), "")
    result = run(["bash", "-c", script], **own)
    expected = ["PIP_FIND_LINKS=/one /two", "PIP_INDEX_URL=https://mirror.example/a b"]
    expected += ["PIP_PROXY=http://mine.example", "PIP_TIMEOUT=5", "3"]
    assert result.stdout.splitlines() == expected, result.stderr


def test_the_file_to_source_sets_what_eb_reads(tmp_path):
    """Each setting for eb takes effect, or is the default, according to eb."""
    file = tmp_path / "env.sh"
    assert run([SCRIPTS / "write-env", file]).returncode == 0
    set_here = dict(
        line.removeprefix("export EASYBUILD_").split("=", 1)
        for line in file.read_text().splitlines()
        if line.startswith("export EASYBUILD_")
    )
    script = f"source {file} && cd {tmp_path} && eb --show-full-config"
    shown = run(["bash", "--noprofile", "--norc", "-c", script]).stdout
    in_force = dict(re.findall(r"^(\S+) +(\(\w\) = .*)$", shown, re.MULTILINE))
    assert "PREFIX" in set_here
    for name, value in set_here.items():
        assert in_force[name.lower().replace("_", "-")] in (f"(E) = {value}", f"(D) = {value}", "(E) = True")


@pytest.mark.parametrize(
    ("configured", "index", "said"),
    [
        (True, False, ""),
        (False, True, "trying file://"),
        (False, False, "Name a place that has it: EBSIF_TORCH_INDEX=URL make demo"),
    ],
)
def test_where_pytorch_for_cpus_comes_from(tmp_path, configured, index, said):
    """The index in pip's configuration, else PyTorch's own, which is announced first; else the command to type."""
    wheels, places = tmp_path / "wheels", tmp_path / "index"
    wheels.mkdir()
    wheel = make_wheel(wheels, "torch", "2.13.0+cpu")
    (places / "torch").mkdir(parents=True)
    link = f'<a href="{wheel.as_uri()}">{wheel.name}</a>' if index else ""
    (places / "torch" / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")
    script = f"""
        set -euo pipefail
        source {SCRIPTS}/lib.sh
        source {SCRIPTS}/pytorch.sh
        install_pytorch 2.13.0 "$@"
    """
    result = run(
        ["bash", "-c", script, "bash", sys.executable, "-m", "pip", "install"],
        EBSIF_TORCH_INDEX=places.as_uri(),
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL=(tmp_path / "nothing").as_uri(),
        PIP_NO_CACHE_DIR="1",
        PIP_FIND_LINKS=str(wheels) if configured else "",
        PIP_TARGET=str(tmp_path / "installed"),
    )
    assert said in result.stderr
    assert ("trying" in result.stderr) is not configured
    assert (result.returncode == 0) == (tmp_path / "installed" / "torch.py").exists() == (configured or index)


def test_without_a_debian_mirror(tmp_path):
    """Where apt has no mirror of Debian, the error names the package that was wanted, and not another one."""
    write_program(tmp_path / "apt-get", "#!/bin/sh\necho http://archive.example/ubuntu\n")
    script = f"set -euo pipefail; source {SCRIPTS}/lib.sh; debian_suites {tmp_path}/state oras trixie"
    result = run(["bash", "-c", script], PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode == 1
    assert result.stderr.endswith("so oras can't be had from there: install it yourself\n")


def test_check_runs_its_tests_with_options(tmp_path):
    """`scripts/check -q` runs the same tests as without options; only files, folders and tests replace them."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "tests/unit").mkdir(parents=True)
    for name in ("check", "lib.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for name, text in (("scripts/setup-venv", ""), (".venv/bin/python", 'echo "${@:3}"')):
        write_program(tmp_path / name, f"#!/bin/bash\n{text}\n")
    for given, expected in (
        ([], r"tests/unit \S+/test_shellcheck.py"),
        (["-q", "-k", "x"], r"tests/unit \S+ -q -k x"),
        (["tests/unit::test_a", "-q"], "tests/unit::test_a -q"),
    ):
        assert re.fullmatch(expected, run([tmp_path / "scripts/check", *given]).stdout.strip())
