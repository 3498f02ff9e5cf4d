"""Run a command in the container of an installed module, without loading the module.

The command gets what loading the module here would set: image, user software, binds and variables. Other container
modules that are loaded have no effect on it. It replaces `ebsif`, so signals reach it, and its exit status is what you
get. The name of an extension means its newest one.
"""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace

from ebsif.commands.options import add_name, names_of
from ebsif.errors import UsageError
from ebsif.installed import runtimecommand
from ebsif.report import output

EXAMPLES = """\
  ebsif run mine -- python train.py
  ebsif run PyTorch/2.7.1 -- python -c 'import torch; print(torch.__version__)'
  ebsif run mine -- bash               # a shell in the container
"""

MORE = ("COMMAND", "the command")
NEEDS_MORE = True

# Python ignores them, and what it starts would, too.
IGNORED = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_name(parser, "module", "the module", only_installed=True, metavar="MODULE")


def run(options: Namespace) -> int:
    """Replace this process by the command; return only if there is none."""
    if not options.more:
        raise UsageError("give the command to run: ebsif run MODULE -- COMMAND")
    words = runtimecommand.inside(names_of(options).installation(options.module), options.more)
    output.command(words)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in filter(lambda name: hasattr(signal, name), IGNORED):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execv(words[0], words)
