"""The numbers of requirements that tests, comments and texts cite are explained in tests/requirements.md."""

import re

from support import CHECKOUT, tracked

TEXT = (CHECKOUT / "tests/requirements.md").read_text()
NUMBER = r"S00\d-\d\d|[A-Z]-\d\d"


def numbers(text):
    """Return the numbers in a text (set)."""
    return set(re.findall(rf"(?<![\w-])(?:{NUMBER})(?![\w-])", text))


def test_every_number_is_explained():
    """H-04: who meets a number finds what it means; a line has one number."""
    lines = re.findall(rf"^- \*\*({NUMBER})\*\* When ", TEXT, re.MULTILINE)
    assert len(lines) == len(set(lines)) == len(re.findall("^- ", TEXT, re.MULTILINE))
    for path in tracked(
        "tests/*.py", "tests/*.sh", "tools/*.py", "easyblocks", "generator/*.py", "scripts", "docs/*.md"
    ):
        unknown = numbers(path.read_text(errors="replace")) - set(lines)
        assert not unknown, (path, unknown)


def test_every_line_has_a_test():
    """H-04: each line is cited by a test, but those of what isn't built yet."""
    cited = set().union(*(numbers(path.read_text()) for path in tracked("tests/*.py")))
    assert numbers(TEXT) - cited == numbers(TEXT.partition("## Not built yet")[2])
