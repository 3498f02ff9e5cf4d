"""Names that no package index has are said before pip starts. No image and no network are needed."""

import http.server
import json
import logging
import socket
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ebsif.catalog.stages import stages_of
from ebsif.environments import bases, indexes, offers, pytorch
from ebsif.environments.baseimage import BaseImage, WantedStages
from ebsif.images import inspection
from ebsif.packages.wanted import KnownImage

# The answer of an index to a question for a name, and the files that it has.
STATUS = {"private": 401, "broken": 500, "moved": 301, "simple": 200}
FILES = {
    "einops": ["einops-0.7.tar.gz", "einops-0.8.0-py3-none-any.whl", "einops-0.9a1.zip", "einops-odd.exe"],
    "lightly": ["lightly-1.5-py3-none-any.whl"],
    "torchvision": ["torchvision-0.28.0-cp311-cp311-manylinux_2_28_x86_64.whl"],
    "torchdata": ["torchdata-0.11-py3-none-any.whl"],
    "torchaudio": ["torchaudio-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"],
}
# What the metadata of a file says that it requires.
METADATA = {"lightly-1.5-py3-none-any.whl": "Requires-Dist: torchvision>=0.20\nRequires-Dist: nosuch; extra == 'x'\n"}
# Those of PyTorch's index.
BUILDS = {"torchvision": ["torchvision-0.28.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"]}


class Index(http.server.BaseHTTPRequestHandler):
    """An index that knows a few names, and keeps who has asked for what."""

    asked: list = []

    def do_GET(self):
        """Answer as PyPI does: pages in JSON, metadata of files; in HTML as PyTorch's index does."""
        name = self.path.strip("/").rpartition("/")[2]
        self.asked.append(name)
        files = (BUILDS if "/whl/cpu/" in self.path else FILES).get(name)
        text, form = METADATA.get(name.removesuffix(".metadata"), ""), "text/html"
        if files and "/whl/" in self.path:
            text = "".join(f'<a href="/files/{file}#sha256=0">{file}</a>' for file in files)
        elif files:
            form = "application/vnd.pypi.simple.v1+json"
            text = json.dumps({"files": [{"url": f"/f/{one}", "core-metadata": one in METADATA} for one in files]})
        self.send_response(200 if text else STATUS.get(name, 404))
        if name == "moved":
            self.send_header("Location", "/simple/einops/")
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def index():
    """The URL of an index."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


@pytest.fixture
def said(monkeypatch, index):
    """A function that returns what is said of requirements, with the settings of pip in an image."""
    image = BaseImage(SimpleNamespace(), KnownImage("3.11", {"torch": "2.13.0+cpu"}), frozenset({"own"}))
    monkeypatch.setattr(BaseImage, "packages", {"inimage": ("inimage", "1", "")})
    monkeypatch.setattr(bases, "image_of", lambda *_: "image.sif")
    monkeypatch.setattr(pytorch.rule(), "INDEX", index.replace("simple", "whl/"))
    monkeypatch.delenv("NETRC", raising=False)

    def run(wanted, settings=None, typed=()):
        text = f"[global]\nindex-url = {index}\n" if settings is None else settings
        monkeypatch.setattr(inspection, "pip_settings", lambda _: text)
        Index.asked.clear()
        answer = indexes.ask(WantedStages(image, stages_of(wanted)), typed)
        return answer.problem or pytorch.offer(answer.builds)

    return run


def test_names_that_exist_nowhere(said):
    """N-07: all of them at once, with a name that exists, and what to do if another index has them."""
    text = said(["einops", "transfomers>=4 # typo", "No_Such.Thing[extra]; python_version > '3'", "moved"])
    assert text == (
        "no package index has transfomers (did you mean transformers?), no-such-thing\n"
        "Correct those names.\nIf an index of yours has them:\n    ebsif extend ... --add '--extra-index-url URL'"
    )
    text = said(["transfomers[torch]>=4"], typed=["extend", "x/1", "--add", "transfomers[torch]>=4", "--check"])
    assert text.splitlines()[1:3] == ["With that name:", "    ebsif extend x/1 --add 'transformers[torch]>=4' --check"]
    assert said(["nosuch"], typed=["extend", "--add", "nosuch"]).splitlines()[1].startswith("Correct that name.")


@pytest.mark.parametrize(
    "wanted",
    [
        # an error is no answer
        ["private", "broken"],
        # the image or user software has them, or they come from elsewhere
        ["torch", "inimage", "own", "nosuch @ https://example.org/nosuch.whl", "nosuch[extra]"],
        ["nosuch ; python_version < '3.8'", "-e git+https://example.org/nosuch#egg=nosuch", "nosuch"],
        # what has hashes was seen, and commands of a stage may do anything
        ["nosuch==1 --hash=sha256:0"],
        [{"name": "a", "pre": ["make"], "requirements": ["nosuch"]}],
        [{"name": "a", "env": {"PIP_FIND_LINKS": "/x"}, "requirements": ["nosuch"]}],
        [{"name": "a", "post": ["make"], "requirements": ["einops"]}, {"name": "b", "requirements": ["nosuch"]}],
        # other places, which don't say what they have
        ["--find-links https://example.org/wheels", "nosuch"],
        ["--find-links=/in/the/image", "nosuch"],
        ["--extra-index-url https://user:secret@example.org/simple", "nosuch"],
        ["--extra-index-url https://${TOKEN}/simple", "nosuch"],
        ["-i ftp://example.org/simple", "nosuch"],
        ["-c constraints.txt", "nosuch"],
        [{"name": "a", "index_url": "https://${TOKEN}@example.org/", "requirements": ["nosuch"]}],
        [{"name": "a", "options": ["--extra-index-url", "ftp://x"], "requirements": ["nosuch"]}],
        ["--extra-index-url {index}/of/a/proxy/that/denies/everything", "nosuch"],
        # what pip doesn't take either
        ["--index-url", "nosuch"],
        ['--index-url "', "nosuch"],
    ],
)
def test_names_that_may_exist(said, index, wanted):
    """N-07: only what every index denies is refused."""
    assert said([one.replace("{index}", index) if isinstance(one, str) else one for one in wanted]) == ""


@pytest.mark.parametrize(
    ("settings", "is_asked"),
    [
        ("[global]\nindex-url = ftp://x\n[install]\nindex-url = {index}\n", True),
        ("[global]\nindex-url = ftp://x\n[:env:]\nINDEX_URL = {index}\n", True),
        ("[global]\nindex-url = {index}\nfind-links = {wheels}\nextra-index-url = file://{wheels} {index}/\n", True),
        ("[global]\nno-index = true\nfind-links = {wheels}\n", True),
        ("[global]\nno-index = 1\n", False),
        ("[global]\nindex-url = {index}\nextra-index-url = http://127.0.0.1:9/\n", False),
        ("[global]\nindex-url = {index}\n[:env:]\nFIND_LINKS = /in/the/image\n", False),
        ("what pip can't read", False),
    ],
)
def test_settings_of_pip(said, index, tmp_path, settings, is_asked):
    """N-07: the settings of pip in the image count as they do for pip; in directories, names are looked for."""
    (tmp_path / "linked_one-1.0-py3-none-any.whl").touch()
    (tmp_path / "indexed").mkdir()
    (tmp_path / "indexed/indexed-1.0.tar.gz").touch()
    filled = settings.format(index=index, wheels=tmp_path)
    text = said(["nosuch", "linked.one"], filled)
    assert text.startswith("no package index has nosuch") == is_asked
    assert ("linked-one" in text) == (is_asked and "{wheels}" not in settings)
    assert ("indexed" in said(["indexed"], filled)) == (is_asked and "file://" not in settings)


def test_the_index_of_pip():
    """N-07: without any setting, pip decides, and this process keeps the logging that EasyBuild needs."""
    before = logging.getLoggerClass()
    (stage,) = stages_of(["x"])
    assert indexes.sources_of(stage, {}).indexes == (indexes.default_index(),)
    assert indexes.default_index().startswith("https://")
    assert logging.getLoggerClass() is before


def test_asks_no_other_index(said, index):
    """N-07: the names of somebody's own packages go to no index that pip wouldn't ask, nor twice to one."""
    said(["nosuch", "einops", "einops>=1"], "[global]\nindex-url = ftp://x\n")
    assert Index.asked == []
    said(["einops", "own", "torch"])
    assert Index.asked == ["einops"]
    assert said([f"-i {index}", "nosuch"], "[global]\nindex-url = ftp://x\n")


def test_no_answer(said, monkeypatch):
    """N-07: without a network, or with an index that doesn't answer, nothing is said, and nobody waits for long."""
    monkeypatch.setattr(offers, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_index = f"-i http://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        assert said([silent_index, "nosuch"]) == ""
        assert time.monotonic() - start < 5
    assert said([silent_index, "nosuch"]) == ""


def test_indexes_with_logins(said, index, tmp_path, monkeypatch):
    """N-07: an index that shows its packages to some accounts only isn't believed."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert said(["nosuch"]) == "" and Index.asked == []


def test_addresses_from_an_index(tmp_path):
    """N-07: a file of this machine to which an index refers isn't opened."""
    (tmp_path / "a-1-py3-none-any.whl.metadata").write_text("Requires-Dist: torchvision\n")
    named = offers.PackageFile(f"{tmp_path.as_uri()}/a-1-py3-none-any.whl", has_metadata=True)
    assert offers.requirements_of(named) is None


def test_without_the_image(said, monkeypatch):
    """N-07: without the image it isn't known which indexes pip uses, so pip says it later."""
    monkeypatch.setattr(bases, "image_of", Mock(side_effect=inspection.InspectionError("no image")))
    assert said(["nosuch"]) == ""


def test_versions_that_exist_nowhere(said):
    """N-07: the newest ones that there are, and what takes them; a pre-release can be asked for."""
    text = said(["einops==99", "torchdata>=1"])
    assert text.startswith("no package index has einops==99: there are only 0.8.0, 0.7\n")
    assert "\nno package index has torchdata>=1: there is only 0.11\n" in text
    assert "\nTo take versions that fit:\n    ebsif extend ... --add einops torchdata\n" in text
    assert said(["einops==0.9a1", "einops<0.8"]) == ""


def test_packages_of_pytorch(said, index, monkeypatch):
    """N-07: PyTorch's index is offered for what other indexes have for another torch than the image's."""
    where = f"--extra-index-url {index.replace('simple', 'whl')}/cpu"
    start = "pip would take torchvision for another torch than the image's, 2.13.0+cpu\n"
    has = "PyTorch's index has the build for that torch. To take it (--yes does, too):\n    ebsif extend ... --add "
    assert said(["torchvision"]).startswith(f"{start}{has}'{where}'\nTo install it nevertheless")
    assert said(["lightly"]).startswith(start.replace("torchvision", "torchvision (needed by lightly)"))
    # it has no such version; the build is there already; it isn't compiled; another index has the build
    for wanted in (["torchvision<0.20"], [where, "torchvision"], ["torchdata"], ["torchaudio"]):
        assert "PyTorch" not in said(wanted)
    monkeypatch.setattr(pytorch.rule(), "INDEX", "http://127.0.0.1:9/")
    assert "PyTorch's index, http://127.0.0.1:9/cpu, doesn't answer here." in said(["torchvision"])
    (stage,) = pytorch.with_index(stages_of(["lightly"]), "https://example.org/cpu")
    assert list(stage.written) == ["--extra-index-url https://example.org/cpu", "lightly"]


@pytest.mark.parametrize(
    ("name", "meant"), [("pytorch", "torch, and the image has it (2.13.0+cpu)"), ("sklearn", "scikit-learn")]
)
def test_names_of_modules(said, name, meant):
    """N-07: packages that only say that they have another name aren't asked for: that name is said."""
    command = f"    ebsif extend x --add {meant.partition(',')[0]}"
    text = said([name], typed=["extend", "x", "--add", name])
    assert text == f"pip's name of {name} is {meant}\nWith that name:\n{command}"
