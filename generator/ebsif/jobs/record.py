"""Read the records that jobs leave beside their logs: what was run, in what, and where."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from easybuild.easyblocks.generic.container import lockfile

from ebsif.errors import EbsifError


class RecordError(EbsifError):
    """A record can't be read; the message says which one, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Record:
    """
    The record of a run.

    Attributes
    ----------
    path
        The file.
    arguments
        What followed ``ebsif job``, with --.
    directory
        Where the job started.
    image
        SHA256 of the image, if it is known.
    program
        SHA256 of the program, if it is a file.
    """

    path: Path
    arguments: list[str]
    directory: str
    image: Optional[str]
    program: Optional[str]


def read(path: Path) -> Record:
    """
    Read a record.

    Raises
    ------
    RecordError
        If the file can't be read or is not the record of a job.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return parse(path, content)
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    except (KeyError, TypeError):
        raise RecordError(f"{path}: not the record of a job (NAME-JOB.json, beside its log)") from None


def parse(path: Path, content: Any) -> Record:
    """Return the content of a record (Record); raise KeyError or TypeError if that's something else."""
    arguments = content["arguments"]
    texts = [content["directory"], *arguments]
    digests = [content["image"].get("sha256"), (content["program"] or {}).get("sha256")]
    if "--" not in arguments or not all(isinstance(one, str) for one in texts + [one for one in digests if one]):
        raise TypeError
    return Record(path, arguments, content["directory"], *digests)


def changes(record: Record, program: Optional[str], lock: Optional[lockfile.Record]) -> Iterator[str]:
    """
    Yield what differs from a recorded run if it is repeated here.

    Parameters
    ----------
    record
        The record.
    program
        The file that is going to be run, if it is one.
    lock
        The record of the installation of its module, if there is one.
    """
    if record.directory != str(Path.cwd()):
        yield f"that run started in {record.directory}: submit there, unless its files are here, too"
    if program and record.program and Path(program).is_file() and \
            hashlib.sha256(Path(program).read_bytes()).hexdigest() != record.program:
        yield f"{program} has changed since that run"
    if lock and record.image and lock.image.sha256 not in (None, record.image):
        yield "the module has another image than in that run"
