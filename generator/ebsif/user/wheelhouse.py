"""Fetching everything that the stages of an easyconfig need, for installing where there is no network."""

import tempfile
from pathlib import Path

from ebsif import eb
from ebsif.errors import EbsifError


class WheelhouseError(EbsifError):
    """A wheelhouse can't be made; the message says why and what to do."""


def fill(easyconfig, folder, options=()):
    """
    Let EasyBuild make the user software of an easyconfig in a temporary place, and keep a wheel of each package.

    Everything goes as in an installation: in the image, stage by stage, with its packages protected. Nothing is
    installed, an installation that is there is not touched.

    Parameters
    ----------
    easyconfig : str or Path
        A file, or the name of an easyconfig that EasyBuild finds.
    folder : Path
        Where the wheels go; it's made if it is not there.
    options : sequence of str
        More options for eb.

    Returns
    -------
    list of Path
        The wheels in the folder, sorted.

    Raises
    ------
    WheelhouseError
        If eb fails; its output was shown.
    """
    # the easyblock puts a wheel of everything it installs there; EasyBuild takes long to load for other commands
    from easybuild.easyblocks.generic.container.pip import FILL_VARIABLE

    folder = Path(folder).resolve()
    if Path(easyconfig).exists():
        easyconfig = Path(easyconfig).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WheelhouseError(f"can't make the folder {folder}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="ebsif-wheelhouse-") as work:
        status = eb.run([easyconfig, f"--buildpath={work}/build", f"--installpath={work}/install", "--stop=build",
                         "--rebuild", *options], **{FILL_VARIABLE: str(folder)}).returncode
    if status:
        raise WheelhouseError("eb failed, see its output above; the folder may hold some of the wheels")
    return sorted(folder.glob("*.whl"))
