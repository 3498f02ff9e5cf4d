"""Reach the server of a running job, which `ebsif job --server` has started, from here or from your own computer.

The address is a socket file that only you can use; `ssh -L` makes it a port of your own computer. The commands for that
are printed, with the key of the server. The connection stays until the job ends, or until Ctrl-C.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from ebsif.commands.options import add_settings, settings_of
from ebsif.jobs import connecting, job

EXAMPLES = """\
  ebsif connect 12345
  ebsif connect 12345 --port 8000      # also at a port here, for programs here
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("job", metavar="JOB", help="the ID of the job")
    add_settings(parser)
    parser.add_argument(
        "--port", type=port, metavar="PORT", help="also listen on this port of 127.0.0.1; requests need the key"
    )


def run(options: Namespace) -> int:
    """Connect until the job ends; return the exit status."""
    connecting.connect(job.scheduler_of(settings_of(options).site()), options.job, options.port)
    return 0


def port(text: str) -> int:
    """Return a port that a person may use."""
    if not (text.isdigit() and 1024 <= int(text) <= 65535):
        raise ArgumentTypeError(f"'{text}' is not a port from 1024 to 65535")
    return int(text)
