"""A node on which the script that finds and creates caches runs, without a container."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container.caches import Caches
from support import CONTAINER_FILES

SCRIPTS = CONTAINER_FILES / "runscripts"


class Node:
    """A node on which the script runs, as it does when a container starts; the directories are below a folder."""

    def __init__(self, folder, shell):
        self.folder, self.shell = folder, shell
        self.scripts, self.home, self.local = folder / "runscripts", folder / "home", folder / "local"
        for path in (self.scripts, self.home, self.local):
            path.mkdir(parents=True)
        for name in ("find-caches", "find-node.sh"):
            shutil.copy(SCRIPTS / name, self.scripts)
        self.local.chmod(0o1777)
        self.write()

    def write(self, **parameters):
        """Write the file as the installation of an easyconfig with these parameters does."""
        (self.scripts / "caches.conf").write_text(Caches(spec(
            **{"node_caches": [str(self.local)], "project_caches": [f"{self.folder}/${{PROJECT}}/${{USER}}/caches"],
               "gpu": "rocm", **parameters})).text)

    def run(self, home=None, uid=None, **variables):
        """Return the variables that the script prints, and its messages."""
        account = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        account_id = os.getuid() if uid is None else uid
        settings = (self.scripts / "caches.conf").read_text()
        caller = ["--caller", str(account_id), settings, *(f"{name}={value}" for name, value in variables.items())]
        names = settings.splitlines()[0].split()
        # what the image sets doesn't count
        image = {"HOME": str(home or self.home), **dict.fromkeys(["PATH", "user", *names], "/of/the/image")}
        result = subprocess.run(
            [*self.shell, self.scripts / "find-caches", *caller], capture_output=True, text=True, check=True, env=image,
            **account)
        return dict(line.split("=", 1) for line in result.stdout.splitlines()), result.stderr

    def caches(self, uid=None):
        """Return the directory of an account on the node."""
        return self.local / f"ebsif-{os.getuid() if uid is None else uid}"

    def check_that_another_is_used(self, theirs):
        """Check that caches have a directory of their own if the name is taken, and nothing is in `theirs`; free it."""
        found, said = self.run()
        own = Path(found["EBSIF_JOB_CACHES"]).parent
        assert str(own).startswith(f"{self.caches()}.")
        assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (os.getuid(), 0o700)
        assert said == ""
        assert list(theirs.iterdir()) == []
        self.caches().rename(tempfile.mkdtemp(dir=self.folder) + "/taken")


def spec(**parameters):
    """Return what Caches reads of a specification."""
    return SimpleNamespace(**{"node_caches": ["/tmp"], "project_caches": [], "cache_variables": {}, "gpu": None,
                              "init": "image", "scheduler": None, **parameters})


@pytest.fixture(params=["dash", "bash"])
def node(request):
    """A node that all accounts can use; images have various shells."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield Node(folder, [shutil.which(request.param), *(["--posix"] if request.param == "bash" else [])])
    shutil.rmtree(folder)
