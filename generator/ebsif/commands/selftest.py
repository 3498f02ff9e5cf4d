"""Try whether everything works on this machine: a test of the machine, the site and ebsif that takes about a minute.

A module is made for IMAGE, which has to contain Python, where it is. The module is installed, loaded, packed, extended
by a package, started as two ranks in a job, ended by a signal, unloaded and removed. Another job starts a server and a
program that asks it, with Ray if the image has it. Without IMAGE, the image of the newest installed module is used,
else one of the catalog. The SHA256 of the image is computed, which takes longer for a large one.

Everything is written below one directory, which jobs must be able to read, and removed at the end. If a step fails,
the directory stays; the file log in it has all commands and their output. The exit status is 1 then. Neither root nor
the network is needed.
"""

import itertools
import json
import platform
import re
import shutil
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from easybuild.easyblocks.generic.container.image import sif

from ebsif import selftest, version
from ebsif.commands.options import add_json, add_settings, complete, names_of, offer, settings_of
from ebsif.errors import FOUND, EbsifError, UsageError
from ebsif.files import is_there
from ebsif.installed import imagestate
from ebsif.installed.names import Names
from ebsif.report import output
from ebsif.report.table import print_table

EXAMPLES = """\
  ebsif selftest                                # with an image that is here
  ebsif selftest python.sif --directory /scratch/project_1
  ebsif selftest --site lumi --json >selftest.json -- --partition debug
"""

MORE = ("JOB_OPTION", "options of `ebsif job`")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    offer(
        complete,
        parser.add_argument("image", metavar="IMAGE", nargs="?", help="a SIF file, or the name of a container"),
    )
    parser.add_argument(
        "--directory",
        metavar="DIRECTORY",
        type=Path,
        default=Path(),
        help="where to make the directory for the test (default: the current one)",
    )
    add_settings(parser)
    add_json(parser)


def run(options: Namespace) -> int:
    """Run the steps, and print a table of them; return 1 if one has failed, else 0."""
    image = find_image(names_of(options), options.image)
    directory = options.directory.resolve()
    if re.search("[,:]", str(directory)):
        raise UsageError(
            f"modules below {directory} would not work, because of the comma or colon: choose another "
            "directory with --directory"
        )
    if not sif.is_sif(str(image)):
        raise EbsifError(f"{image} is not a SIF file: give an image, or the name of a container")
    test = selftest.SelfTest(image, directory, settings_of(options), options.more)
    works = False
    try:
        outcomes = list(test.run())
        show(test, outcomes, options.json)
        works = all(one.result in (selftest.OK, selftest.NOT_HERE) for one in outcomes)
        say = output.done if works else output.note
        numbers = Counter(one.result for one in outcomes).items()
        say(f"{len(outcomes)} steps: {', '.join(f'{number} {result}' for result, number in numbers)}")
    finally:
        test.close()
        if works:
            shutil.rmtree(test.folder, ignore_errors=True)
        else:
            output.note(f"the commands and their output are in {test.folder}/log; remove {test.folder} afterwards")
    return 0 if works else FOUND


def show(test: selftest.SelfTest, outcomes: Sequence[selftest.Outcome], as_json: bool) -> None:
    """Print the outcomes as a table, or with what is known about the machine as JSON."""
    if as_json:
        print(
            json.dumps(
                {
                    "ebsif": version(),
                    "date": time.strftime("%Y-%m-%d"),
                    "site": test.profile.name,
                    "kernel": platform.release(),
                    "image": test.image.name,
                    "size": test.image.stat().st_size,
                    "machine": test.machine,
                    "steps": list(map(asdict, outcomes)),
                },
                indent=2,
            )
        )
    else:
        print_table(
            ["step", "result", "seconds", ""],
            [[one.step, one.result, f"{one.seconds:g}", one.text] for one in outcomes],
        )


def find_image(names: Names, text: str) -> Path:
    """Return the image with a name; without one, that of the newest installed module, else one of the catalog."""
    if text:
        return names.image(text)
    installed = map(imagestate.path_of, names.newest_first(names.installations))
    recorded = (path for one in names.recorded for _, path in one.image_places if is_there(path))
    for path in itertools.chain(filter(None, installed), recorded):
        output.note(f"the image is {path}")
        return path
    raise UsageError(
        "no image is known here: give one with Python; `apptainer pull docker://python:3.12-slim` "
        "fetches one, for example"
    )
