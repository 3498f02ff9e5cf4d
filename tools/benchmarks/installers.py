"""
Compare uv with pip as the installer of user software: packages, files and protection, and the CPU time of both.

Each of thirty sets of requirements is installed on top of the example image, in a copy of the same venv: with pip as
the easyblock calls it, with uv alone, and with uv that resolves with a stub of each package of the image. Prints a
table in Markdown and what differs; `scripts/bench installers` measures the same. Needs the environment of `make test`,
and an index.
"""

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "tests")]

from measuring import Row  # noqa: E402 in this directory
from support import CHECKOUT, make_wheel  # noqa: E402 in another directory

PYTHON = "/opt/miniconda3/envs/pytorch/bin/python"
VENV = "/user-software/venv"
UV_INSTALL = ("/opt/uv", "pip", "install", "--python", f"{VENV}/bin/python")
SITE = "venv/lib/python3.11/site-packages"
# written by installers, or with the time of the installation
OWN = ("INSTALLER", "REQUESTED", "RECORD", "uv_cache.json", "uv_build.json")

# requirements by name; {place} is a folder with wheels and sources
SETS = {
    "one package": "einops",
    "programs": "tqdm\ntabulate\ncowsay",
    "extras": "requests[socks]",
    "extras of extras": "jsonschema[format]",
    "markers": "typer; python_version > '3.8'\ncolorama; sys_platform == 'win32'",
    "ranges": "pydantic>=2,<3",
    "exact": "rich==13.9.4",
    "pre-releases": "--pre\nblack",
    "compiled": "pandas",
    "larger": "scikit-learn",
    "plots": "matplotlib",
    "web": "fastapi",
    "notebook": "ipykernel",
    "tokens": "tokenizers",
    "weights": "safetensors",
    "config (source only)": "hydra-core",
    "source": "--no-binary docopt\ndocopt",
    "boards": "tensorboard",
    "on torch": "torchmetrics",
    "on torch, larger": "pytorch-lightning",
    "follows torch": "torchvision",
    "in the image": "numpy\nsympy",
    "partly in the image": "sympy\nmore-itertools",
    "replaces numpy": "numpy<2",
    "replaces torch": "torch==2.12.0",
    "needs another numpy": "{place}/wants-1.0-py3-none-any.whl",
    "local wheel": "{place}/mine-1.0-py3-none-any.whl",
    "local source": "{place}/source",
    "built against torch": "--no-build-isolation\n{place}/kernels",
    "wrong hash": "six==1.17.0 --hash=sha256:" + "0" * 64,
}
SETUP = "import setuptools{more}\nsetuptools.setup(name='{name}', version='1.0', py_modules=['{name}'])\n"
LIST = """\
from importlib.metadata import distributions
print([(one.metadata['Name'], one.version, one.read_text('METADATA')) for one in distributions()])
"""


class Place:
    """The image, the folder that is /user-software, and what both installers need."""

    def __init__(self, folder):
        """Create the venv, the constraints, and stubs of the packages of the image."""
        self.folder, self.files, self.cache = folder, folder / "files", folder / "cache"
        for path in (self.files, self.cache, folder / "stubs", folder / "template"):
            path.mkdir()
        self.make_sources()
        # with the image's pip, like the easyblock
        self.run(
            folder / "template", [PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", VENV], check=True
        )
        found = ast.literal_eval(self.run(folder / "template", [PYTHON, "-c", LIST], check=True).stdout)
        self.image = {normal(name): version for name, version, _ in found}
        self.constraints = folder / "constraints.txt"
        self.constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(self.image.items())))
        for name, version, metadata in found:
            write_stub(folder / "stubs", name, version, metadata)

    def make_sources(self):
        """Write wheels and sources that some sets need."""
        make_wheel(self.files, "mine", requires=["more-itertools"], scripts={"mine": "mine:main"})
        make_wheel(self.files, "wants", requires=["numpy>=99"])
        for name, more in (("source", ""), ("kernels", ", torch")):
            (self.files / name).mkdir()
            (self.files / name / "setup.py").write_text(SETUP.format(name=name, more=more))
            (self.files / name / f"{name}.py").write_text("x = 1\n")

    def run(self, software, command, check=False):
        """Run a command in the container; return the completed process."""
        binds = [
            f"{software}:/user-software",
            str(self.folder),
            *subprocess.run(["bash", CHECKOUT / "scripts/install-binds"], stdout=subprocess.PIPE, text=True, check=True)
            .stdout.strip()
            .split(","),
        ]
        settings = {
            "PIP_CACHE_DIR": self.cache / "pip",
            "UV_CACHE_DIR": self.cache / "uv",
            "PIP_NO_INPUT": "1",
            "UV_LINK_MODE": "copy",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
            "UV_NO_PROGRESS": "1",
            "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""),
            "PYTHONNOUSERSITE": "1",
            "SSL_CERT_FILE": os.environ.get("PIP_CERT", ""),
        }
        environment = {
            **os.environ,
            **{f"APPTAINERENV_{name}": str(value) for name, value in settings.items() if value},
        }
        return subprocess.run(
            [
                "apptainer",
                "exec",
                *(word for bind in binds if bind for word in ("--bind", bind)),
                "--bind",
                f"{os.environ['EBSIF_TEST_UV']}:/opt/uv",
                os.environ["EBSIF_TEST_PYTORCH_IMAGE"],
                *command,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=check,
        )

    def pip(self, software, file):
        """Install like the easyblock."""
        lines = file.read_text().splitlines()
        options = [line for line in lines if line == "--no-build-isolation"]
        file.write_text("".join(f"{line}\n" for line in lines if line not in options))
        return [
            self.run(
                software,
                [
                    f"{VENV}/bin/python",
                    "-m",
                    "pip",
                    "install",
                    "--no-compile",
                    "-r",
                    file,
                    "-c",
                    self.constraints,
                    "--disable-pip-version-check",
                    *options,
                ],
            )
        ]

    def uv(self, software, file):
        """Install with uv alone."""
        return [
            self.run(
                software,
                [
                    *UV_INSTALL,
                    "-r",
                    file,
                    "-c",
                    self.constraints,
                    *self.options_of(file),
                ],
            )
        ]

    def uv_with_stubs(self, software, file):
        """Resolve with stubs of the packages of the image, then install what the image doesn't have."""
        options = self.options_of(file)
        leave_out = [word for name in self.image for word in ("--no-emit-package", name)]
        done = [
            self.run(
                software,
                [
                    "/opt/uv",
                    "pip",
                    "compile",
                    file,
                    "-c",
                    self.constraints,
                    "--python",
                    PYTHON,
                    "--find-links",
                    self.folder / "stubs",
                    "--no-header",
                    "--no-annotate",
                    "--output-file",
                    "/user-software/locked.txt",
                    "--generate-hashes",
                    *leave_out,
                    *options,
                ],
            )
        ]
        if done[0].returncode == 0 and any(
            not line.startswith("#") for line in (software / "locked.txt").read_text().splitlines()
        ):
            done.append(
                self.run(
                    software,
                    [
                        *UV_INSTALL,
                        "--no-deps",
                        "-r",
                        "/user-software/locked.txt",
                        *options,
                    ],
                )
            )
        return done

    def options_of(self, file):
        """Return options for uv in a requirements.txt that it only takes on the command line, and remove them."""
        lines = file.read_text().splitlines()
        known = {"--pre": ["--prerelease", "allow"], "--no-build-isolation": ["--no-build-isolation"]}
        file.write_text("".join(f"{line}\n" for line in lines if line not in known))
        return [word for line in lines for word in known.get(line, [])]


def write_stub(folder, name, version, metadata):
    """Write a wheel with nothing but the metadata of a package."""
    stem = f"{name.replace('-', '_').replace('.', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def normal(name):
    """Return the normalized name of a package, without extras."""
    return name.partition("[")[0].strip().replace("_", "-").replace(".", "-").lower()


def measure(place, name, requirements, runs):
    """Install a set with each contender; return results by name: status, CPU seconds, packages, files, output."""
    results = {}
    for turn in range(runs + 1):
        for title, install in (("pip", place.pip), ("uv", place.uv), ("uv with stubs", place.uv_with_stubs)):
            software = place.folder / "software"
            shutil.rmtree(software, ignore_errors=True)
            shutil.copytree(place.folder / "template", software, symlinks=True)
            file = place.folder / "requirements.txt"
            file.write_text(requirements.format(place=place.files) + "\n")
            start = sum(os.times()[2:4])
            done = install(software, file)
            seconds = sum(os.times()[2:4]) - start
            files = files_of(software)
            best = min(seconds, results[title][1]) if turn > 1 else seconds
            results[title] = (
                done[-1].returncode,
                best,
                packages_of(software, place),
                files,
                "".join(one.stdout for one in done),
            )
    return results


def packages_of(software, place):
    """Return the packages in the venv (dict): name and version, without those of the empty venv."""
    empty = {path.name for path in (place.folder / "template" / SITE).glob("*.dist-info")}
    found = {path.name for path in (software / SITE).glob("*.dist-info")} - empty
    return {
        normal(name.removesuffix(".dist-info").rpartition("-")[0]): name.removesuffix(".dist-info").rpartition("-")[2]
        for name in found
    }


def files_of(software):
    """Return the files of the venv: a digest by relative path; files of the installers and bytecode are left out."""
    root = software / "venv"
    return {
        str(path.relative_to(root)): "link" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if (path.is_file() or path.is_symlink())
        and path.suffix != ".pyc"
        and path.name not in OWN
        and "__pycache__" not in path.parts
    }


def differences(first, second):
    """Return in which respects two results differ (list of str)."""
    texts = []
    if (first[0] == 0) != (second[0] == 0):
        texts.append(f"status {second[0]} instead of {first[0]}")
    if first[2] != second[2]:
        more = {name: version for name, version in second[2].items() if first[2].get(name) != version}
        less = {name: version for name, version in first[2].items() if name not in second[2]}
        texts.append(
            f"{len(more)} other packages: {', '.join(f'{k} {v}' for k, v in sorted(more.items()))}"
            + (f"; missing: {', '.join(sorted(less))}" if less else "")
        )
    elif first[3] != second[3]:
        names = sorted(name for name in first[3].keys() | second[3].keys() if first[3].get(name) != second[3].get(name))
        texts.append(f"{len(names)} files differ: {', '.join(names[:4])}")
    return texts


def compare(folder):
    """Measure all sets; return a row for each contender (CPU time, not time)."""
    place, found = Place(folder), []
    for name, requirements in SETS.items():
        for title, (status, seconds, packages, _, _) in measure(place, name, requirements, 1).items():
            found.append(
                Row(
                    f"requirements: {name}",
                    title,
                    seconds,
                    1,
                    note="refused" if status else f"{len(packages)} packages",
                )
            )
    return found


def main():
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="SET", nargs="*", help="sets to compare (default: all)")
    parser.add_argument("--runs", type=int, default=1, help="measured runs of each, after one to fill the caches")
    parser.add_argument("--output", action="store_true", help="also print the end of what failing installers say")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="installers-", dir=CHECKOUT / ".demo") as folder:
        place = Place(Path(folder))
        print("| requirements | pip | uv | uv with stubs |\n|---|---|---|---|")
        said = []
        for name in options.names or SETS:
            results = measure(place, name, SETS[name], options.runs)
            cells = [
                f"{seconds:.1f} s, {len(packages)} packages" if status == 0 else f"{seconds:.1f} s, refused"
                for status, seconds, packages, _, _ in results.values()
            ]
            for title in ("uv", "uv with stubs"):
                said += [f"{name}: {title}: {text}" for text in differences(results["pip"], results[title])]
            if options.output:
                said += [f"{name}: {title} said: {result[4][-700:]}" for title, result in results.items() if result[0]]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print("\n".join(["", *said]))


if __name__ == "__main__":
    main()
