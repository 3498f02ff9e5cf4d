"""A node on which the script that finds and creates caches runs, without a container."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from easybuild.easyblocks.generic.container.settings import cache_lines
from easybuild.easyblocks.generic.container.spec import ContainerSpec
from support import CONTAINER_FILES, attempt

SCRIPTS = CONTAINER_FILES / "runscripts"


class Node:
    """A node on which the script runs, as it does when a container starts; the directories are below a folder."""

    def __init__(self, folder, shell):
        self.folder, self.shell = folder, shell
        self.scripts, self.home, self.local = folder / "runscripts", folder / "home", folder / "local"
        for path in (self.scripts, self.home, self.local):
            path.mkdir(parents=True)
        for name in ("find-caches", "stage-software"):
            shutil.copy(SCRIPTS / name, self.scripts)
        self.local.chmod(0o1777)
        self.write()

    def write(self, **parameters):
        """Let the script have what the installation of an easyconfig with these parameters has in module.conf."""
        made = parts(
            **{
                "node_caches": [str(self.local)],
                "project_caches": [f"{self.folder}/${{PROJECT}}/${{USER}}/caches"],
                "gpu": "rocm",
                **parameters,
            }
        )
        lines = cache_lines(made.caches, made.scheduler)
        self.table = "".join(f"{key} {value}\n" for key, value in lines).removeprefix("cache_reads ")

    def run(self, home=None, uid=None, groups=(), before=(), **variables):
        """Return the variables that the script prints, and its messages; `before` is a command that starts it."""
        account = {} if uid is None else {"user": uid, "group": uid, "extra_groups": groups}
        account_id = os.getuid() if uid is None else uid
        names = self.table.splitlines()[0].split()
        # as the script that calls it does
        caller = [f"{name}={value}" for name, value in variables.items() if name in names]
        # what the image sets doesn't count
        image = {"HOME": str(home or self.home), **dict.fromkeys(["PATH", "user", *names], "/of/the/image")}
        command = [*before, *self.shell, self.scripts / "find-caches", str(account_id), self.table]
        environment = {**image, "ebsif_caller": "\n".join(caller)}
        result = attempt(command, env=environment, **account)
        assert result.returncode == 0, result.stderr
        return dict(line.split("=", 1) for line in result.stdout.splitlines()), result.stderr

    def caches(self, uid=None):
        """Return the directory of an account on the node."""
        return self.local / f"ebsif-{os.getuid() if uid is None else uid}"

    def check_that_it_is_refused(self, theirs):
        """Check that no cache is in a directory whose name is taken, and nothing is in `theirs`; free the name."""
        found, said = self.run()
        assert found == {"EBSIF_JOB_CACHES": ""}
        assert said.startswith(
            f"ebsif: caches can't be in {self.caches()}: another account owns it or can exchange it, or it is a link\n"
        )
        assert list(theirs.iterdir()) == []
        self.caches().rename(tempfile.mkdtemp(dir=self.folder) + "/taken")


def parts(**parameters):
    """Return what the module needs of an easyconfig with these parameters."""
    return ContainerSpec({"name": "Example", "version": "1.0", "sources": [], **parameters}).parts


@pytest.fixture(params=["dash", "bash"])
def node(request):
    """A node that all accounts can use; images have various shells."""
    # of root, in a directory where nobody else can have made it
    folder = Path(tempfile.mkdtemp(dir=None if os.geteuid() else "/run"))
    folder.chmod(0o755)
    yield Node(folder, [shutil.which(request.param), *(["--posix"] if request.param == "bash" else [])])
    shutil.rmtree(folder)
