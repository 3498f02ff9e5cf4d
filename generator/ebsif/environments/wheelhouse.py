"""Collect the wheels that the stages of an easyconfig need, for installations without network access."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Union

from ebsif.eb import framework, running
from ebsif.errors import EbsifError


class WheelhouseError(EbsifError):
    """A wheelhouse can't be filled; the message says why and what to do."""


def fill(easyconfig: Union[str, Path], folder: Path, options: Sequence[str] = ()) -> list[Path]:
    """
    Let EasyBuild build the user software of an easyconfig in a temporary directory; return the wheels of its packages.

    This works as in an installation: in the image, stage by stage, with the image's packages protected. Nothing is
    installed. The easyconfig is a file, or a name that EasyBuild finds. Raise WheelhouseError if eb fails.
    """
    # imported here because EasyBuild takes long to load
    from easybuild.easyblocks.generic.container.pip import FILL_VARIABLE

    folder = Path(folder).resolve()
    if Path(easyconfig).exists():
        easyconfig = Path(easyconfig).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WheelhouseError(f"can't create the folder {folder}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="ebsif-wheelhouse-") as work:
        # the variable tells the easyblock to put a wheel of everything it installs into the folder
        done = running.install([easyconfig, *framework.only_build(work), *options], **{FILL_VARIABLE: str(folder)})
    if done.status:
        done.print_program()
        raise WheelhouseError(f"{done.message}\nThe folder may contain some of the wheels.")
    return sorted(folder.glob("*.whl"))
