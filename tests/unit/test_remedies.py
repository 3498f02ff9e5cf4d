"""Remedies are whole commands: what was typed, with more options."""

import io
import shlex
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from easybuild.easyblocks.generic.container import remedies as messages
from ebsif import remedies
from ebsif.catalog.container import Container, ContainerRecordError
from ebsif.catalog.stages import stages_of
from ebsif.commands import upgrade
from ebsif.environments import extending, impossible, indexes
from ebsif.environments.baseimage import BaseImage
from ebsif.environments.pytorch import TorchBuild
from ebsif.environments.repeating import MissingImageError
from ebsif.environments.request import Request
from ebsif.errors import EbsifError
from ebsif.images.registry.connection import TransferError
from ebsif.packages import requirements, typed
from ebsif.packages.wanted import KnownImage

TYPED = "extend Base/1.0 -r 'my file.txt'"
NEVERTHELESS = shlex.join(messages.NEVERTHELESS)


@pytest.mark.parametrize(
    ("typed", "options", "expected"),
    [
        (TYPED, "--apt g++", f"{TYPED} --apt g++"),
        (TYPED, "--add 'a<2'", f"{TYPED} --add 'a<2'"),
        (f"{TYPED} -- --robot", "--add a", f"{TYPED} --add a -- --robot"),
        (TYPED, NEVERTHELESS, f"{TYPED} -- --ignore-test-failure"),
        (f"{TYPED} -- --robot", NEVERTHELESS, f"{TYPED} -- --robot --ignore-test-failure"),
        # what was typed before would contradict it
        (
            "extend x --add torch==2.9.1 'a[b]>1' '--no-binary a'",
            "--add torch",
            "extend x --add 'a[b]>1' '--no-binary a' --add torch",
        ),
        ("extend x --add=torch==2 --name torch", "--add '--x y' torch", "extend x --name torch --add '--x y' torch"),
        ("extend x --replace torch==2 --force --yes", "--add torch", "extend x --yes --add torch"),
        # eb alone, and what can't have more packages
        ("", "--add a", "extend ... --add a"),
        ("extend --from-lock x.json", "--add a", "extend ... --add a"),
    ],
)
def test_the_whole_command(typed, options, expected):
    """E-11: the command to type is complete, whatever was typed; in a line of its own or in a sentence."""
    typed, options, expected = shlex.split(typed), shlex.split(options), f"ebsif {expected}"
    line = messages.line(*options)
    assert remedies.completed(f"To add it:{line}\nMore.", typed) == f"To add it:\n    {expected}\nMore."
    assert remedies.completed(f"Use `{messages.again(*options)}` then.", typed) == f"Use `{expected}` then."


@pytest.mark.parametrize(
    "error",
    [
        TransferError("refused", 401),
        MissingImageError("a.sif isn't here"),
        ContainerRecordError(SimpleNamespace(place="Tool.yaml:3", name="Tool", version="1.0"), "has no family"),
    ],
)
def test_an_error_with_more_than_its_message(error):
    """E-11: completing its commands leaves an error as it was made: its message, and what else it has."""
    message, others = str(error), vars(error).copy()
    with pytest.raises(type(error)) as raised, remedies.whole(["extend", "x"]):
        raise error
    assert (str(raised.value), vars(raised.value)) == (message, others)


@pytest.mark.parametrize(
    ("lines", "more", "expected"),
    [
        (["torch==2.9.1", "einops"], ["torch"], ["torch", "einops"]),
        (
            ["a", "torchvision[x]>=0.1"],
            ["--extra-index-url https://x", "TorchVision==0.28+cpu"],
            ["a", "TorchVision[x]==0.28+cpu", "--extra-index-url https://x"],
        ),
        (["a==1 ; python_version < '3'", "b", "a==2"], ["a==3"], ["a==3", "b"]),
    ],
)
def test_lines_in_place_of_others(lines, more, expected):
    """E-11: with -r, --add changes what the file says; what comes last counts."""
    assert typed.joined(lines, more) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("!pip install -q transformers 'datasets>=2'", "is not a requirement: write each package by itself, such as"),
        ("%pip install -q transformers datasets>=2", "That is:\n    transformers\n    datasets>=2"),
        ("python -m pip install einops", "That is:\n    einops"),
        # a sentence may look like packages
        ("transformers datasets evaluate", "If all of these are packages, that is:\n    transformers\n    datasets\n"),
        ("transformers, datasets", "write each package by itself"),
    ],
)
def test_a_line_that_is_no_requirement(tmp_path, line, expected):
    """N-07: the reader refuses what pip can't read, with file and line, and says what is meant."""
    path = tmp_path / "requirements.txt"
    path.write_text(f"rich\n{line}\n-r more.txt\n-r none.txt\n")
    (tmp_path / "more.txt").write_text("a b c\ntorch==2.9.1\n")
    wanted = requirements.read_all([path, tmp_path / "gone.txt"])
    text = "\n".join(wanted.wrong)
    assert text.startswith(f"{path}:2: '{line}' is not a requirement") and expected in text
    # all of them at once, and what else is wrong can be found out
    for other in ("more.txt:1: 'a b c'", "none.txt can't be read", "gone.txt does not exist"):
        assert text.count(other) == 1
    assert wanted.lines == ["rich", "torch==2.9.1"]


def test_requirements_from_standard_input(monkeypatch):
    """N-07: -r - reads what another program prints, as a file."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"rich\na b\neinops # x\n")))
    wanted = requirements.read_all([Path("-")])
    assert wanted.lines == ["rich", "einops"]
    assert wanted.wrong[0].startswith("standard input:2: 'a b' is not a requirement")


def test_pins_that_contradict_each_other(tmp_path):
    """N-07: two versions of a package are said with their files, and all of them at once."""
    (tmp_path / "a.txt").write_text("Rich==13\neinops==0.7\nsix==1.0\nnumpy==1; python_version < '3.9'\n")
    (tmp_path / "b.txt").write_text("rich==14\neinops==0.8\nsix==1\nnumpy==2\ntqdm\n")
    wanted = requirements.read_all([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert [text.replace(f"{tmp_path}/", "") for text in wanted.wrong] == [
        "a.txt has 'Rich==13', and b.txt has 'rich==14': keep one of the lines",
        "a.txt has 'einops==0.7', and b.txt has 'einops==0.8': keep one of the lines",
    ]
    assert wanted.lines[-2:] == ["numpy==2", "tqdm"]


def test_all_that_is_wrong_at_once(monkeypatch):
    """N-07: what can't be had of other lines is said together with lines that are no requirements."""
    container = Container.of("x", {"version": "1", "suffix": "", "requirements": "own"}, None, None)
    monkeypatch.setattr(extending, "require_places", lambda _: None)
    monkeypatch.setattr(extending, "find_base", lambda _: container)
    monkeypatch.setattr(impossible, "why_impossible", lambda wanted: f"{wanted.lines} {sorted(wanted.image.hidden)}")
    monkeypatch.setattr(indexes, "ask", lambda *_: indexes.Answer("unknown"))
    wish = extending.Wish(Request("extend"), "x/1", add=["a b", "torch==2.9.1", "c d"])
    with pytest.raises(EbsifError, match="'a b' is not a requirement") as error:
        extending.make(wish)
    assert str(error.value).splitlines()[3:] == [
        "--add: 'c d' is not a requirement: write each package by itself, such as 'einops>=0.8'. "
        "If all of these are packages, that is:",
        "    c",
        "    d",
        "['torch==2.9.1'] ['own']",
        "unknown",
    ]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(("more", "torch"), [({}, "2+cpu"), ({"yes": True}, "2+cpu"), ({}, "2+cu126")])
def test_the_index_of_pytorch_is_taken(monkeypatch, capsys, more, torch, answers):
    """N-07: with --yes, if it answers; else it is offered, as an error where pip's build can't work."""
    build = TorchBuild("torchvision", "torchvision", torch, "https://example.org/cpu", answers)
    monkeypatch.setattr(indexes, "ask", lambda *_: indexes.Answer("", (build,)))
    image, wanted = BaseImage(SimpleNamespace(), KnownImage()), requirements.split_into_stages(["torchvision"])
    stages, problem = impossible.checked(Request("extend", **more), image, wanted)
    is_taken = bool(more) and answers
    assert ("--extra-index-url https://example.org/cpu" in stages[0].written) == is_taken
    assert ("PyTorch's index" in problem) == (torch == "2+cpu" and not is_taken)
    assert bool(capsys.readouterr().err) == (is_taken or torch == "2+cu126")


def test_extras_and_groups_are_named(tmp_path):
    """E-12: if a project needs nothing without them, the message has what to type."""
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\nname = "x"\n[project.optional-dependencies]\nbench_mark = ["rich"]\n'
        '[dependency-groups]\ndev = ["einops"]\n'
    )
    (wrong,) = requirements.read_all([path]).wrong
    assert wrong.endswith("Choose of these:\n    ebsif extend ... --extra bench_mark\n    ebsif extend ... --group dev")
    assert requirements.read_all([path], None, ["bench-mark"]).lines == ["rich"]


def test_nothing_is_added_to_locked_lines():
    """E-12: pip wants hashes for all packages or none; the error says what to do."""
    with pytest.raises(EbsifError, match="'b' can't be added to packages that are locked with hashes"):
        typed.joined(["a==1 --hash=sha256:00"], ["b"])


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["a", "--no-binary a"], ["--add", "a", "--no-binary a"]),
        ([{"name": "requirements", "requirements": "a\n", "post": ["true"]}], None),
    ],
)
def test_the_command_for_an_upgrade(stages, expected):
    """E-11: `ebsif upgrade` adds nothing; what makes the same extension and can add is `ebsif extend`."""
    options = Namespace(site=None, date=None, output=None, image=None, catalog=["c"], check=False, more=["--robot"])
    fields = {"version": "2.0", "suffix": "", "system_packages": ["ffmpeg"]}
    container = Container.of("Base", fields, None, None)
    words = upgrade.extending_words(options, container, "mine", stages_of(stages))
    others = ["--apt", "ffmpeg", "--catalog", "c", "--", "--robot"]
    assert words == (["extend", "Base/2.0", "--name", "mine", *expected, *others] if expected else [])
