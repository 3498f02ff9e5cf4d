"""Known vulnerabilities of installed modules."""

import http.server
import importlib.util
import json
import os
import shutil
import sys
import threading
import zipfile

import pytest
from ebsif.cli import main
from ebsif.installed import audit, places
from prefixes import BASE, MINE


def entry(name, identifier, package, events, aliases=(), **more):
    """Return an entry of a database in OSV's format."""
    affected = {"package": {"name": package, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return name, {"id": identifier, "aliases": list(aliases), "summary": f"{package} is bad", "affected": [affected],
                  **more}


ENTRIES = dict([
    entry("PYSEC-1.json", "PYSEC-2024-1", "einops", [{"introduced": "0"}, {"fixed": "0.8.2"}], ["CVE-2024-1"]),
    entry("GHSA-1.json", "GHSA-1", "Einops", [{"introduced": "0"}, {"fixed": "0.8.2"}], ["CVE-2024-1"]),
    entry("GHSA-2.json", "GHSA-2", "numpy", [{"introduced": "1"}, {"last_affected": "2.0"}]),
    entry("GHSA-3.json", "GHSA-3", "numpy", [{"introduced": "1"}, {"fixed": "2.0"}]),
    entry("GHSA-4.json", "GHSA-4", "numpy", [{"introduced": "0"}], withdrawn="2024-01-01T00:00:00Z"),
    entry("GHSA-5.json", "GHSA-5", "torch", [{"introduced": "2.1"}, {"fixed": "2.2"}, {"introduced": "3"}]),
])


@pytest.fixture
def database(tmp_path):
    """A zip file of advisories, as published for offline use."""
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in ENTRIES.items():
            archive.writestr(name, json.dumps(content))
    return path


@pytest.fixture
def prefix(eb_prefix):
    """Two modules; one has einops in its user software, and Python packages with other versions than Python's."""
    eb_prefix.install(MINE, image_packages=["numpy==2.0", "torch==2.0+cpu", "odd==1ubuntu1"])
    eb_prefix.install(BASE, ["einops==0.8.2"], image_packages=["numpy==2.1"])
    return eb_prefix


def test_without_network(prefix, database, capsys):
    """I-08: the modules with an affected version are listed, each advisory under one name; status 1."""
    assert main(["installed", "--audit", "--database", str(database)]) == 1
    said = capsys.readouterr()
    assert (said.out + said.err).splitlines() == [
        MINE,
        "  numpy 2.0 (image): GHSA-2, no fixed version",
        "    numpy is bad",
        "  einops 0.8.1 (user software): CVE-2024-1 (PYSEC-2024-1), fixed in 0.8.2",
        "    einops is bad",
        "2 modules with 5 packages: 2 findings in 1 module",
        f"To update packages in user software: ebsif extend {MINE} --add 'einops>=0.8.2' --install",
        "Packages in an image need a newer image: see `ebsif list`, then `ebsif upgrade` for extensions",
    ]
    assert main(["installed", "--audit", "--json", "--database", str(database), str(prefix.software.parent)]) == 1
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["module"], first["package"], first["id"], first["fixed"]) == (MINE, "numpy", "GHSA-2", [])
    assert main(["installed", "--audit", "--database", str(database), BASE]) == 0
    assert capsys.readouterr() == ("", "1 module with 2 packages: no known vulnerabilities\n")


def test_packages_as_they_are_now(prefix, database, capsys):
    """I-08: a package that was added by hand is audited."""
    prefix.add(prefix.software / BASE, "torch", "2.1.3+rocm6.2")
    assert main(["installed", "--audit", "--database", str(database), BASE]) == 1
    said = capsys.readouterr()
    assert "  torch 2.1.3+rocm6.2 (user software): GHSA-5, fixed in 2.2\n" in said.out
    # it is an extension, too, whose easyconfig says so
    assert said.err.endswith(f"ebsif extend {BASE} --add 'torch>=2.2' --install\n")


def test_versions_without_vulnerabilities():
    """I-08: of each package the lowest one that is newer and fixes everything; what has no fix is left out."""
    def found(package, version, *fixed, place="user-software"):
        return audit.Vulnerability("M/1", package, version, place, audit.Advisory("A", (), fixed, ""))

    assert audit.updates([
        found("a", "2.1", "1.9", "2.2", "3.0"), found("a", "2.1", "2.10"), found("b", "1"), found("c", "1", "2"),
        found("d", "1", "2", place="image")]) == {"M/1": ["a>=2.10", "c>=2"]}


@pytest.mark.parametrize(("events", "inside"), [
    ([("introduced", "0"), ("fixed", "1.5")], True), ([("introduced", "0"), ("fixed", "1.0")], False),
    ([("introduced", "1.0")], True), ([("introduced", "1.0.1")], False), ([("introduced", "0")], True),
    ([("introduced", "0"), ("last_affected", "1.0")], True), ([("introduced", "0"), ("last_affected", "0.9")], False),
    ([("introduced", "0"), ("fixed", "0.5"), ("introduced", "0.9"), ("fixed", "2")], True),
    ([("fixed", "0.5"), ("introduced", "0"), ("limit", "9")], False),
    ([("introduced", "0"), ("limit", "*")], True), ([("introduced", "0"), ("fixed", "r12-odd")], True)])
def test_ranges(events, inside):
    """I-08: OSV's rules for ranges of versions."""
    affected = {"ranges": [{"type": "ECOSYSTEM", "events": [dict([event]) for event in events]}]}
    assert audit.is_affected("1.0", affected) is inside
    assert audit.is_affected("1.0", {"versions": ["0.9", "1.0.0"]})
    assert not audit.is_affected("1.0", {"versions": ["9", "no version"]})


def test_what_is_not_audited(prefix, database, monkeypatch, capsys):
    """
    I-08: a module with a damaged record is named, and the status is 1, although nothing else is found.

    A directory that others don't let us read is named, too, but nothing is wrong with it.
    """
    closed = prefix.software / "Other/1.0"
    closed.mkdir(parents=True)
    monkeypatch.setattr(places, "is_closed", lambda path: path == closed)
    lstat = os.lstat
    monkeypatch.setattr(places.os, "lstat", lambda path, **how: lstat("/nowhere" if path == closed else path, **how))
    # a module that is named twice is audited once
    modules = [BASE, str(prefix.software / BASE), str(prefix.software)]
    assert main(["installed", "--audit", "--database", str(database), *modules]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"ebsif: not audited: {closed}: can't be read, so what is installed there is unknown: "
                               "Permission denied\n2 modules with") and " in /" not in said.out
    shutil.rmtree(prefix.software / MINE)
    (prefix.modules / f"{MINE}.lua").unlink()
    assert main(["installed", "--audit", "--database", str(database)]) == 0
    prefix.install(MINE)
    (prefix.software / MINE / "share/ebsif/lock.json").write_text("{")
    assert main(["installed", "--audit", "--database", str(database)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("ebsif: not audited: ") and said.err.endswith("no known vulnerabilities\n")


@pytest.mark.parametrize(("content", "expected"), [
    (None, "can't be read"), ("no zip", "can't be read"), ({}, "no advisories on Python packages"),
    ({"a.json": "{"}, "a.json in the advisory database is damaged"),
    *(({"a.json": json.dumps(entry("", "PYSEC-9", "numpy", events)[1] | more)}, "a.json in the advisory database is")
      for events, more in [
          ([{"introduced": 0}], {}), ([{"introduced": "0", "fixed": 2.1}], {}), ([{}, 1], {}),
          ([{"introduced": "0"}], {"id": 1}), ([], {"affected": {"package": "x"}}),
          ([], {"affected": [{"package": {"ecosystem": "PyPI"}}]}),
          ([], {"affected": [{"package": {"ecosystem": "PyPI", "name": "numpy"}, "ranges": [{"events": []}]}]}),
          ([], {"affected": [{"package": {"ecosystem": "PyPI", "name": "numpy"}, "ranges": [{"type": "ECOSYSTEM"}]}]}),
      ])])
def test_files_that_are_no_database(prefix, tmp_path, capsys, content, expected):
    """I-08, N20: a wrong file is an error, not an audit without findings; status 3."""
    path = tmp_path / "x.zip"
    if isinstance(content, dict):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
    elif content:
        path.write_text(content)
    assert main(["installed", "--audit", "--database", str(path)]) == 3
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("x.zip") == 1 or isinstance(content, dict)


def test_a_database_that_is_damaged(prefix, database, capsys):
    """I-08: compressed content of which some bytes are others."""
    with zipfile.ZipFile(database, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", json.dumps(ENTRIES) * 9)
    content = database.read_bytes()
    database.write_bytes(content[:40] + bytes(byte ^ 255 for byte in content[40:42]) + content[42:])
    assert main(["installed", "--audit", "--database", str(database)]) == 3
    assert capsys.readouterr().err.endswith("a.json in the advisory database is damaged: get a new copy\n")


class Service(http.server.BaseHTTPRequestHandler):
    """A service on this machine with OSV's interface, which knows one advisory."""

    def do_POST(self):
        """Answer a query."""
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = query["package"]["name"] == "torch" and query["version"] == "2.0"
        text = json.dumps({"vulns": [entry("", "GHSA-6", "torch", [{"introduced": "0"}, {"fixed": "2.8"}])[1]]} if known
                          else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Print nothing."""


def test_pip_audit(prefix, tmp_path, monkeypatch, capsys):
    """I-08: pip-audit asks a service, for all versions of a package and without local labels; status 1."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if sys.version_info < (3, 10):  # for which there is only a pip-audit that always asks OSV itself
        assert main(["installed", "--audit", "--osv-url", "http://127.0.0.1:9/query"]) == 3
        assert "--osv-url needs pip-audit 2.10, which needs Python 3.10" in capsys.readouterr().err
        return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/query"
        assert main(["installed", "--audit", "--osv-url", url]) == 1
        printed = "".join(capsys.readouterr())
        server.shutdown()
    assert "  torch 2.0+cpu (image): GHSA-6, fixed in 2.8\n" in printed and "1 finding in 1 module" in printed
    assert main(["installed", "--audit", "--osv-url", "http://127.0.0.1:9/query"]) == 3
    assert "pip-audit failed" in (said := capsys.readouterr().err) and "--database" in said


def test_a_service_that_knows_no_package(prefix, monkeypatch, capsys):
    """I-08: a service that has only files, such as a mirror, is an error, not an audit without findings."""
    unknown = []
    monkeypatch.setattr(audit, "from_service", lambda pins, url: ({}, sorted(pins)[len(unknown):]))
    assert main(["installed", "--audit"]) == 3
    assert "no answer for any of the 5 packages" in " ".join(capsys.readouterr().err.split())
    unknown.append("one is known")
    assert main(["installed", "--audit"]) == 0
    text = capsys.readouterr()
    assert "no answer from the service for 4 packages" in text.err and "no known vulnerabilities" in text.err


def test_without_pip_audit(prefix, monkeypatch, capsys):
    """I-08: pip-audit is optional: the message says how to get it, and what works without it."""
    monkeypatch.setitem(sys.modules, "pip_audit", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip_audit" else find_spec(name))
    assert main(["installed", "--audit"]) == 3
    assert f"run `{sys.executable} -m pip install pip-audit`; or " in (said := capsys.readouterr().err)
    assert "--database" in said
    # with ebsif as a module, of Python that runs eb
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert main(["installed", "--audit"]) == 3
    assert (f"run `{sys.executable} -m pip install --target DIRECTORY pip-audit`, and put `PYTHONPATH=DIRECTORY:"
            "$PYTHONPATH` before this command, or ask the site for it; or ") in capsys.readouterr().err
