"""
Record the commands of the README as a person sees them at a terminal: docs/pictures/session.svg.

Run by scripts/record-session, which sets up what the commands need.
"""

import io
import itertools
import os
import pty
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    import pyte

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURE = CHECKOUT / "docs/pictures/session.svg"
COLUMNS, LINES = 160, 300
# columns of the picture, in which longer lines are broken between words
WIDTH = 104
# for those who don't see the picture
TITLE = "A terminal: a module with PyTorch is loaded and used, then extended by a package with one command"
# Bash reads one command after the other, and shows each as if it had been typed. What they install is not for the demo.
SHOW = """
source .demo/env.sh
export EASYBUILD_PREFIX=$HOME/eb
mkdir -p "$HOME/eb/modules/all"
module use "$HOME/eb/modules/all"
cd "$HOME"
ln -s "$OLDPWD/docs" .
while IFS= read -r -u 3 command; do
    printf '\\e[1;32m$\\e[0m %s\\n' "$command"
    eval "$command" || exit
    echo
done 3<"$1"
"""


def commands() -> list[str]:
    """Return the commands of the README that load, use and extend a module."""
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    # without the comments
    return [line.partition("  # ")[0].rstrip() for line in first[1].splitlines()]


def record(file: Path) -> "pyte.Screen":
    """Run the commands in a file at a terminal; return its screen."""
    # only for recording, and fetched for that
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    process, terminal = pty.fork()
    if not process:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp("bash", ["bash", "--noprofile", "--norc", "-c", SHOW, "bash", str(file)])
    output = b""
    while True:
        try:
            output += os.read(terminal, 65536)
        except OSError:
            # Linux: everything that had the terminal open has ended
            break
    stream.feed(output.replace(os.fsencode(Path.home()), b"~"))
    if os.waitpid(process, 0)[1]:
        sys.exit("\n".join(["a command failed:", *(line.rstrip() for line in screen.display if line.strip())]))
    return screen


def drawn(screen: "pyte.Screen") -> str:
    """Return a screen as SVG, which loads nothing from other servers."""
    last = max(number for number, line in enumerate(screen.display) if line.strip())
    text = Text()
    for number in range(last + 1):
        cells, line = [screen.buffer[number][column] for column in range(COLUMNS)], Text()
        for look, some in itertools.groupby(cells, key=lambda cell: (cell.fg, cell.bold, cell.italics)):
            line.append("".join(cell.data for cell in some), style_of(*look))
        line.rstrip()
        text.append(line).append("\n")
    # the frame cuts off the lower end of the last line
    text.append("\n")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(text, end="")
    svg = console.export_svg(title="ebsif", unique_id="session").replace(">", f">\n    <title>{TITLE}</title>", 1)
    return re.sub(r" *@font-face \{.*?\}\n", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def style_of(color: str, is_bold: bool, is_italic: bool) -> Style:
    """Return the style of characters on the screen."""
    # the terminal's eight colors have names, of which one is not rich's
    known = {"default": None, "brown": "yellow"}
    named = known.get(color, f"#{color}" if re.fullmatch("[0-9a-f]{6}", color) else color)
    return Style(color=named, bold=is_bold, italic=is_italic)


def main() -> int:
    """Record the session in the directory that is named on the command line, and draw it."""
    folder = Path(sys.argv[1])
    file = folder / "commands"
    file.write_text("".join(f"{line}\n" for line in commands()), encoding="utf-8")
    PICTURE.write_text(drawn(record(file)), encoding="utf-8")
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
