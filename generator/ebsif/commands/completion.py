"""Print a script that lets the shell complete ebsif command lines with the Tab key.

It needs the library argcomplete, which is not installed with ebsif: run `pip install argcomplete` in its environment.
"""

from argparse import ArgumentParser, Namespace

from ebsif.errors import EbsifError, how_to_add

EXAMPLES = """\
  source <(ebsif completion bash)      # in ~/.bashrc
  source <(ebsif completion zsh)       # in ~/.zshrc, after compinit
  ebsif completion fish > ~/.config/fish/completions/ebsif.fish
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    shells = ["bash", "zsh", "fish"]
    # the message on a missing argument lists them, too
    parser.add_argument("shell", choices=shells, metavar="|".join(shells), help="your shell")


def run(options: Namespace) -> int:
    """Print the script; return 0."""
    try:
        import argcomplete
    except ImportError:
        raise EbsifError(f"the library argcomplete is missing: {how_to_add('argcomplete')}") from None
    print(argcomplete.shellcode(["ebsif"], shell=options.shell))
    return 0
