"""Remedies are whole commands: what was typed, with more options."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import remedies as messages
from ebsif import remedies
from ebsif.commands import upgrade
from ebsif.environments import change
from ebsif.environments.change import ChangingError

TYPED = ["extend", "Base/1.0", "-r", "my file.txt", "--install"]


@pytest.mark.parametrize(("typed", "options", "expected"), [
    (TYPED, ["--apt", "g++"], "ebsif extend Base/1.0 -r 'my file.txt' --install --apt g++"),
    (TYPED, ["--add", "a<2"], "ebsif extend Base/1.0 -r 'my file.txt' --install --add 'a<2'"),
    ([*TYPED, "--", "--robot"], ["--add", "a"], "ebsif extend Base/1.0 -r 'my file.txt' --install --add a -- --robot"),
    (TYPED, messages.NEVERTHELESS, "ebsif extend Base/1.0 -r 'my file.txt' --install -- --ignore-test-failure"),
    ([*TYPED, "--", "--robot"], messages.NEVERTHELESS,
     "ebsif extend Base/1.0 -r 'my file.txt' --install -- --robot --ignore-test-failure"),
    # eb alone, and what can't have more packages
    ([], ["--add", "a"], "ebsif extend ... --add a"),
    (["extend", "--from-lock", "x.json"], ["--add", "a"], "ebsif extend ... --add a")])
def test_the_whole_command(typed, options, expected):
    """E-11, student 3: the command to type is complete, whatever was typed; in a line of its own or in a sentence."""
    line = messages.line(*options)
    assert remedies.completed(f"It fails. To add it:{line}\nMore.", typed) == \
        f"It fails. To add it:\n    {expected}\nMore."
    assert remedies.completed(f"Use `{messages.again(*options)}` then.", typed) == f"Use `{expected}` then."


@pytest.mark.parametrize(("lines", "more", "expected"), [
    (["torch==2.9.1", "einops"], ["torch"], ["torch", "einops"]),
    (["a", "torchvision[x]>=0.1"], ["--extra-index-url https://x", "TorchVision==0.28+cpu"],
     ["a", "TorchVision[x]==0.28+cpu", "--extra-index-url https://x"]),
    (["a==1 ; python_version < '3'", "b", "a==2"], ["a==3"], ["a==3", "b"]),
    ([], ["a", "a>=2", "b"], ["a>=2", "b"])])
def test_lines_in_place_of_others(lines, more, expected):
    """E-11, student 3, B10: with -r, --add changes what the file says; what comes last counts."""
    assert change.joined(lines, more) == expected


def test_nothing_is_added_to_locked_lines():
    """E-12: pip wants hashes for all packages or none; the error says what to do."""
    with pytest.raises(ChangingError, match="'b' can't be added to packages that are locked with hashes"):
        change.joined(["a==1 --hash=sha256:00"], ["b"])


@pytest.mark.parametrize(("stages", "expected"), [
    (["a", "--no-binary a"], ["--add", "a", "--no-binary a"]),
    ([{"name": "requirements", "requirements": "a\n", "post": ["true"]}], None)])
def test_the_command_for_an_upgrade(stages, expected):
    """E-11: `ebsif upgrade` adds nothing; what makes the same extension and can add is `ebsif extend`."""
    options = Namespace(site=None, date=None, output=None, image=None, catalogue=["c"], check=False, more=["--robot"])
    container = SimpleNamespace(module="Base/2.0", system_packages=["ffmpeg"])
    words = upgrade.extending_words(options, container, "mine", stages)
    assert words == (["extend", "Base/2.0", "--name", "mine", *expected, "--apt", "ffmpeg", "--catalogue", "c",
                      "--install", "--", "--robot"] if expected else [])
