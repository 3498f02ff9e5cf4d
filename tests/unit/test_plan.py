"""What `ebsif extend --check` says about what pip would install."""

import json
import socket
import threading
from pathlib import Path

import pytest
from ebsif import ebsteps
from ebsif.cli import main
from ebsif.user import outcome, plan


@pytest.fixture
def odd_server():
    """The address of a server that answers one question with something else than HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            client, _ = server.accept()
            with client:
                client.recv(1000)
                client.sendall(b"220 welcome\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/a-1-py3-none-any.whl"


def test_sizes_that_nobody_knows(odd_server, tmp_path):
    """E-02: the size of a package is unknown if a server doesn't say it; a repository has none."""
    assert plan.size_of({"url": odd_server}) is None
    assert plan.size_of({"url": "http://user:****@127.0.0.1/a-1-py3-none-any.whl"}) is None
    file = tmp_path / "a b.whl"
    file.write_bytes(b"x" * 5)
    assert plan.size_of({"url": file.as_uri()}) == 5
    assert plan.size_of({"url": file.as_uri(), "vcs_info": {"vcs": "git"}}) is None


def test_options_of_the_user_do_not_hide_the_plan(tmp_path, monkeypatch, capsys):
    """E-02: with --buildpath for eb, the packages are still found where pip says what it would install."""
    def eb(arguments):
        (folder,) = [one.partition("=")[2] for one in map(str, arguments) if one.startswith("--buildpath=")][-1:]
        report = Path(folder, "PyTorch/2.7.0/system/stages/requirements/report.json")
        report.parent.mkdir(parents=True)
        report.write_text(json.dumps({"install": [{"metadata": {"name": "einops", "version": "0.8"}, "requested": True,
                                                   "download_info": {"url": "file:///none"}}]}))
        return ebsteps.Result()

    monkeypatch.setattr(ebsteps, "install", eb)
    monkeypatch.chdir(tmp_path)
    container = "PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527"
    assert main(["extend", "--site", "lumi", container, "--add", "einops", "--name", "mine", "--check", "--",
                 f"--buildpath={tmp_path}/elsewhere"]) == 0
    assert capsys.readouterr().out.startswith("+ einops 0.8    asked for\nyes: ")
    assert outcome.install_command(["extend", "a b", "--check", "--", "--debug"]) == (
        "ebsif extend 'a b' --install -- --debug")
