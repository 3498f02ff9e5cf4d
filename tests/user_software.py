"""User software of the tests that pip downloads, kept in the user's cache."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from support import CHECKOUT


def kept(name, load, packages):
    """Return a directory for EBSIF_USER_SOFTWARE with the packages of a module and others, which pip installs once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ebsif/user-software")
    cache.mkdir(parents=True, exist_ok=True)
    folder, new = cache / name, cache / f"{name}.new"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            binds = subprocess.run([CHECKOUT / "scripts/install-binds"], capture_output=True, text=True, check=True)
            load(
                f"""
                set -e
                unmake-squashfs
                module reload
                start-shell -c 'pip install --quiet {" ".join(packages)}'
                make-squashfs
                rm -r "$EBSIF_USER_SOFTWARE/user-software"
            """,
                EBSIF_USER_SOFTWARE=new,
                APPTAINER_BIND=binds.stdout.strip(),
            )
            new.rename(folder)
    return folder
