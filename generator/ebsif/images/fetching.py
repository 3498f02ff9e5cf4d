"""Fetch an image, as the installation of its module would, which then finds it there."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.image.source import ImageSource
from easybuild.easyblocks.generic.container.values import format_size

from ebsif.eb import framework
from ebsif.errors import EbsifError
from ebsif.images.checksum import sha256 as sha256_of
from ebsif.report import output
from ebsif.report.steps import Now, Steps


def fetched(target: Path, size: int) -> Now:
    """Return how much of an image (its path) is fetched, of so many bytes; not what is converted after that."""
    sizes = [part.stat().st_size for part in target.parent.glob(f".{target.name}.*/**/*") if part.is_file()]
    done = min(sum(sizes), size) if size else sum(sizes)
    return Now(format_size(done) + (f" of {format_size(size)}" if size else ""), done, size)


def fetch(
    source: ImageSource, name: str, folder: Optional[Path] = None, size: int = 0, sha256: Optional[str] = None
) -> tuple[Path, ImageSource]:
    """
    Fetch an image, unless it is there already; return the SIF file, and the source with its digest.

    It gets a name in a folder (default: EasyBuild's source path); `size` in bytes of what is fetched and `sha256` of
    the SIF file are given if they are known. A note beside the file (``.source.json``) keeps the source. Raise
    EbsifError if the image can't be fetched, or isn't what it should be; then nothing of it is left under its name.
    """
    # they take long to import
    from easybuild.easyblocks.generic.container.image.fetch import fetch
    from easybuild.easyblocks.generic.container.image.identity import check_note, noted_source
    from easybuild.tools.build_log import EasyBuildError

    framework.session()
    target = (folder or Path(framework.source_paths()[0])).absolute() / name

    # what EasyBuild prints is for the output of eb
    printed = sys.stderr if output.is_verbose() else io.StringIO()
    try:
        with Steps() as steps, contextlib.redirect_stdout(printed):
            if target.exists():
                check_note(str(target), source)
            else:
                steps.begin(f"fetching {name}", watch=lambda: fetched(target, size))
                fetch(source, str(target), sha256)
    except EasyBuildError as error:
        raise EbsifError(str(error).strip("'\"")) from None
    noted = noted_source(str(target))
    if not noted and sha256 != sha256_of(target):
        raise EbsifError(
            f"{target} exists already, and may not be the image from {source}: move it away, or "
            "choose another directory"
        )
    return target, noted or source
