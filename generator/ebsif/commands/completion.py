"""Print a script that lets the shell complete ebsif command lines with the Tab key."""

from argparse import ArgumentParser, Namespace

EXAMPLES = """\
  source <(ebsif completion bash)      # in ~/.bashrc
  source <(ebsif completion zsh)       # in ~/.zshrc, after compinit
  ebsif completion fish > ~/.config/fish/completions/ebsif.fish
"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")


def run(options: Namespace) -> int:
    """Print the script; return 0."""
    import argcomplete

    print(argcomplete.shellcode(["ebsif"], shell=options.shell))
    return 0
