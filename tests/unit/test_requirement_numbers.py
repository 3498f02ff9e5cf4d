"""The numbers of requirements that tests, comments and texts cite are explained in tests/requirements.md."""

import ast
import re
import tokenize

from support import CHECKOUT, tracked

TEXT = (CHECKOUT / "tests/requirements.md").read_text()
NUMBER = r"S00\d-\d\d|[A-Z]-\d\d"
# how numbers of issues and findings were once cited: a capital letter and digits without a hyphen; two digits,
# hyphen, h, digit; an issue, unless its project is named; a word with a number at the beginning
UNEXPLAINED = (
    r"(?<![\w.-])(?:[A-Z]\d{1,2}(?:\.\d+)?(?![\w-])|\d\d-h\d)"
    r"|(?<![\w-] )\b[Ii]ssue \d+"
    r"|^\W*(?:[a-z.]* ?\d{1,2}(?:\.\d+)?|[A-Z][a-z]+ \d{1,2}|[Dd]ocs [A-Z])[:,]"
)


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


def prose(path):
    """Return the comments and docstrings of a Python file (list)."""
    with path.open("rb") as file:
        comments = [one.string for one in tokenize.tokenize(file.readline) if one.type == tokenize.COMMENT]
    nodes = ast.walk(ast.parse(path.read_text()))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [*comments, *(ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented))]


def test_no_other_number_is_cited():
    """H-04: comments and docstrings give a reason, or cite a number that is explained here."""
    for path in tracked("*.py"):
        for text in prose(path) if re.search(UNEXPLAINED, path.read_text(), re.MULTILINE) else ():
            cited = re.search(UNEXPLAINED, text, re.MULTILINE)
            assert not cited, (path, cited[0], text, "say it in words, or cite a line of tests/requirements.md")


def test_every_line_has_a_test():
    """H-04: each line is cited by a test, but those of what isn't built yet."""
    cited = set().union(*(numbers(path.read_text()) for path in tracked("tests/*.py")))
    assert numbers(TEXT) - cited == numbers(TEXT.partition("## Not built yet")[2])
