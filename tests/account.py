"""
The account as which tests run, and root where it is the subject of a test.

What people do is done as an ordinary account, whose containers mount images in user space (FUSE). So if root starts the
tests, each process of pytest gives up root and keeps only the way back: root as the saved ID, which no program that it
starts inherits.
"""

import contextlib
import ctypes
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "ebsif-tests"
CHECKOUT = Path(__file__).resolve().parent.parent
# where tests, pytest and its plugins write in a checkout
CREATED = (".demo", ".pytest_cache", ".hypothesis", ".ruff_cache")


# a command in a mount namespace of its own, where it can mount as root can, and is the same account
OWN_MOUNTS = ("unshare", "--mount", "--map-current-user", "--keep-caps")
PR_SET_DUMPABLE = 4
NEEDS_ROOT = "this needs root: start the tests as root"


def leave_root():
    """Become the account if this is root; `make check` does without where the account is missing."""
    with contextlib.suppress(KeyError):
        if os.geteuid() == 0:
            person = pwd.getpwnam(NAME)
            if "PYTEST_XDIST_WORKER" not in os.environ:
                give_away(person)
            become(person)
            os.register_at_fork(after_in_child=forget_root)
            use_variables(person)
            check_access()


def become(person):
    """Have the rights of the account, with root as the saved ID, and own what is below /proc/self."""
    os.initgroups(person.pw_name, person.pw_gid)
    os.setresgid(person.pw_gid, person.pw_gid, 0)
    os.setresuid(person.pw_uid, person.pw_uid, 0)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)


def forget_root():
    """Give up the way back as well, in a fork."""
    if os.geteuid():
        os.setresgid(*[os.getegid()] * 3)
        os.setresuid(*[os.geteuid()] * 3)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)


def give_away(person):
    """Let the account write what tests, pytest and its plugins write in the checkout, which others may use as well."""
    for name in CREATED:
        (CHECKOUT / name).mkdir(exist_ok=True)
    for folder in {path.parent for path in (CHECKOUT / "tests").rglob("*.py")}:
        (folder / "__pycache__").mkdir(exist_ok=True)
    places = [CHECKOUT / name for name in (*CREATED, ".venv", "build") if (CHECKOUT / name).exists()]
    places += (CHECKOUT / "tests").rglob("__pycache__")
    subprocess.run(["chown", "-R", "--no-dereference", f"{person.pw_uid}:{person.pw_gid}", *places], check=True)


def use_variables(person):
    """Set the variables that a login of the account sets, and let git read the checkout of somebody else."""
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ |= {
        **{"HOME": person.pw_dir, "USER": person.pw_name, "LOGNAME": person.pw_name, "SHELL": person.pw_shell},
        "PATH": ":".join(one for one in os.environ["PATH"].split(":") if os.access(one, os.X_OK)),
        **{"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
    }


def check_access():
    """End the tests if the account can't read the checkout."""
    for path in (__file__, sys.executable, os.curdir):
        if not os.access(path, os.R_OK):
            pytest.exit(
                f"tests run as the account {NAME}, which can't read {Path(path).absolute()}: run scripts/test, "
                "which copies the checkout",
                2,
            )


def can_be_root():
    """Return whether this process has given up root, or is root."""
    return 0 in os.getresuid()


@contextlib.contextmanager
def as_root():
    """Be root, with its variables, also in programs that are started here."""
    if os.geteuid() == 0:
        yield
        return
    person = pwd.getpwuid(os.geteuid())
    if not can_be_root():
        pytest.fail(NEEDS_ROOT)
    os.seteuid(0)
    root = pwd.getpwuid(0)
    before = {name: os.environ.get(name, "") for name in ("HOME", "USER", "LOGNAME", "EBSIF_NODE_LOCAL")}
    # caches of root aren't in the account's directory
    os.environ |= {"HOME": root.pw_dir, "USER": root.pw_name, "LOGNAME": root.pw_name, "EBSIF_NODE_LOCAL": ""}
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    try:
        yield
    finally:
        become(person)
        os.environ |= before


def as_starter():
    """Be whoever has started the tests: root, or the account."""
    return as_root() if can_be_root() else contextlib.nullcontext()


@contextlib.contextmanager
def in_group(number):
    """Be a member of a group, also in programs that are started here."""

    def join(groups):
        os.seteuid(0)
        os.setgroups(groups)
        os.seteuid(os.getuid())

    before = os.getgroups()
    if not can_be_root():
        pytest.fail(NEEDS_ROOT)
    join([*before, number])
    try:
        yield
    finally:
        join(before)


def give(path, owner, group=-1):
    """Give a file or link (Path) to another account (its number), which only root can do."""
    with as_root():
        os.chown(path, owner, group, follow_symlinks=False)
