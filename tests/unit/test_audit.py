"""Known vulnerabilities of installed modules."""

import http.server
import importlib.util
import json
import os
import shutil
import sys
import threading

import pytest
from ebsif.cli import main
from ebsif.installed import audit, search
from prefixes import BASE, MINE

WITHOUT_NETWORK = "give a bill of materials to osv-scanner or grype: `ebsif lock MODULE --format sbom`"
# what the stand-in for pip-audit says of packages in versions that are affected
ANSWERS = {
    ("einops", "0.8.1"): {"id": "CVE-2024-1", "aliases": ["PYSEC-2024-1"], "fix_versions": ["0.8.2"]},
    ("numpy", "2.0"): {"id": "GHSA-2", "aliases": [], "fix_versions": []},
    ("torch", "2.1.3"): {"id": "GHSA-5", "aliases": [], "fix_versions": ["2.2"]},
}
for (name, _), answer in ANSWERS.items():
    answer["description"] = f"{name} is bad"


@pytest.fixture
def service(monkeypatch):
    """Let a stand-in answer for pip-audit; the packages that were asked for, by name, one dict per call."""
    calls = []

    def ask(versions, _):
        calls.append(dict(versions))
        found = {one: [ANSWERS[one]] if one in ANSWERS else [] for one in versions.items()}
        return [{"name": name, "version": version, "vulns": vulns} for (name, version), vulns in found.items()]

    monkeypatch.setattr(audit, "ask", ask)
    return calls


@pytest.fixture
def prefix(eb_prefix):
    """Two modules; one has einops in its user software, and Python packages with other versions than Python's."""
    eb_prefix.install(MINE, image_packages=["numpy==2.0", "torch==2.0+cpu", "odd==1ubuntu1"])
    eb_prefix.install(BASE, ["einops==0.8.2"], image_packages=["numpy==2.1"])
    return eb_prefix


def test_modules_with_vulnerabilities(prefix, service, ebsif):
    """I-08: the modules with an affected version are listed; each version is asked for once; status 1."""
    said = ebsif("installed", "--audit", status=1)
    assert (said.out + said.err).splitlines() == [
        MINE,
        "  numpy 2.0 (image): GHSA-2, no fixed version",
        "    numpy is bad",
        "  einops 0.8.1 (user software): CVE-2024-1 (PYSEC-2024-1), fixed in 0.8.2",
        "    einops is bad",
        "2 modules with 5 packages: 2 findings in 1 module",
        f"To update packages in user software: ebsif extend {MINE} --add 'einops>=0.8.2'",
        "Packages in an image need a newer image: see `ebsif list`, then `ebsif upgrade` for extensions",
    ]
    # pip-audit takes one version of a package at a time; what isn't a version of Python is in no advisory
    asked = sorted(f"{name} {version}" for call in service for name, version in call.items())
    assert asked == ["einops 0.8.1", "einops 0.8.2", "numpy 2.0", "numpy 2.1", "torch 2.0"]
    first, _ = json.loads(ebsif("installed", "--audit", "--json", str(prefix.software.parent), status=1).out)
    assert (first["module"], first["package"], first["id"], first["fixed"]) == (MINE, "numpy", "GHSA-2", [])
    assert ebsif("installed", "--audit", BASE) == ("", "1 module with 2 packages: no known vulnerabilities\n")


def test_packages_as_they_are_now(prefix, service, ebsif):
    """I-08: a package that was added by hand is audited."""
    prefix.add(prefix.software / BASE, "torch", "2.1.3+rocm6.2")
    said = ebsif("installed", "--audit", BASE, status=1)
    assert "  torch 2.1.3+rocm6.2 (user software): GHSA-5, fixed in 2.2\n" in said.out
    # it is an extension, too, whose easyconfig says so
    assert said.err.endswith(f"ebsif extend {BASE} --add 'torch>=2.2'\n")


def test_versions_without_vulnerabilities():
    """I-08: of each package the lowest one that is newer and fixes everything; what has no fix is left out."""

    def found(package, version, *fixed, place="user-software"):
        return audit.Vulnerability("M/1", package, version, place, audit.Advisory("A", (), fixed, ""))

    all_found = [found("a", "2.1", "1.9", "2.2", "3.0"), found("a", "2.1", "2.10"), found("b", "1")]
    all_found += [found("c", "1", "2"), found("d", "1", "2", place="image")]
    assert audit.updates(all_found) == {"M/1": ["a>=2.10", "c>=2"]}


def test_what_is_not_audited(prefix, service, monkeypatch, ebsif):
    """I-08: a directory that others don't let us read is named; a damaged record, too, and the status is 1."""
    closed = prefix.software / "Other/1.0"
    closed.mkdir(parents=True)
    # another account has closed it
    closed.chmod(0)
    monkeypatch.setattr(search.os, "getuid", lambda: os.geteuid() + 1)
    # a module that is named twice is audited once
    modules = [BASE, str(prefix.software / BASE), str(prefix.software)]
    said = ebsif("installed", "--audit", *modules, status=1)
    unread = f"ebsif: not audited: {closed}: can't be read, so what is installed there is unknown: Permission denied\n"
    assert said.err.startswith(f"{unread}2 modules with") and " in /" not in said.out
    shutil.rmtree(prefix.software / MINE)
    (prefix.modules / f"{MINE}.lua").unlink()
    assert main(["installed", "--audit"]) == 0
    prefix.install(MINE)
    (prefix.software / MINE / "share/ebsif/lock.json").write_text("{")
    said = ebsif("installed", "--audit", status=1)
    assert said.err.startswith("ebsif: not audited: ") and said.err.endswith("no known vulnerabilities\n")


class Service(http.server.BaseHTTPRequestHandler):
    """A service on this machine with OSV's interface, which knows one vulnerability under several names."""

    def do_POST(self):
        """Answer a query."""
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = query["package"]["name"] == "torch" and query["version"] == "2.0"
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.8"}]}]
        affected = {"package": {"name": "torch", "ecosystem": "PyPI"}, "ranges": ranges}
        found = {"aliases": ["CVE-2024-6"], "summary": "torch is bad", "affected": [affected]}
        vulnerabilities = [{"id": name, **found} for name in ("GHSA-6", "PYSEC-2024-6")]
        text = json.dumps({"vulns": vulnerabilities} if known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Print nothing."""


def test_pip_audit(prefix, tmp_path, monkeypatch, capsys, ebsif):
    """I-08: pip-audit asks a service, without local labels; a vulnerability with several names is listed once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if sys.version_info < (3, 10):  # for which there is only a pip-audit that always asks OSV itself
        said = ebsif("installed", "--audit", "--osv-url", "http://127.0.0.1:9/query", status=3)
        assert "--osv-url needs pip-audit 2.10, which needs Python 3.10" in said.err
        return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/query"
        printed = "".join(ebsif("installed", "--audit", "--osv-url", url, status=1))
        server.shutdown()
    assert "  torch 2.0+cpu (image): PYSEC-2024-6 (CVE-2024-6, GHSA-6), fixed in 2.8\n    torch is bad\n" in printed
    assert "1 finding in 1 module" in printed
    assert main(["installed", "--audit", "--osv-url", "http://127.0.0.1:9/query"]) == 3
    assert "pip-audit failed" in (said := " ".join(capsys.readouterr().err.split())) and WITHOUT_NETWORK in said


def test_a_service_that_knows_no_package(prefix, monkeypatch, ebsif):
    """I-08: a service that has only files, such as a mirror, is an error, not an audit without findings."""
    unknown = []
    monkeypatch.setattr(audit, "from_service", lambda pins, url: ({}, sorted(pins)[len(unknown) :]))
    said = " ".join(ebsif("installed", "--audit", status=3).err.split())
    assert "no answer for any of the 5 packages" in said and WITHOUT_NETWORK in said
    unknown.append("one is known")
    text = ebsif("installed", "--audit")
    assert "no answer from the service for 4 packages" in text.err and "no known vulnerabilities" in text.err


def test_without_pip_audit(prefix, monkeypatch, ebsif):
    """I-08: pip-audit is optional: the message says how to get it, and what works without it."""
    monkeypatch.setitem(sys.modules, "pip_audit", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pip_audit" else find_spec(name))
    said = " ".join(ebsif("installed", "--audit", status=3).err.split())
    assert f"run `{sys.executable} -m pip install pip-audit`. " in said and WITHOUT_NETWORK in said
    # with ebsif as a module, of Python that runs eb
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    said = " ".join(ebsif("installed", "--audit", status=3).err.split())
    put = f"run `{sys.executable} -m pip install --target DIRECTORY pip-audit`, and put `PYTHONPATH=DIRECTORY:"
    assert put in said and WITHOUT_NETWORK in said
