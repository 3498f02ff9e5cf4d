"""`ebsif update` and lists of images on web servers: index pages, JSON and text, from a real HTTP server."""

import functools
import hashlib
import http.server
import json
import threading
from urllib.parse import quote

import pytest
from ebsif import cli
from ebsif.catalogue import fieldtypes, inheritance, reading, site
from ebsif.update import lists
from httpfiles import serve_files

CATALOGUE = """\
name: Tool
families:
  tool:
    homepage: https://tool.example
    description: x
    file: "tool-{flavour}-t{torch!dotless}-{date}.sif"
    suffix: -{flavour}-{date}
    init: none
containers:
  - {family: tool, version: 2.9, date: 1, components: {torch: 2.9, flavour: full},
     source: 'URL/tool-full-t29-1.sif#sha256=SUM'}
"""
PACKAGES = {"pip": [{"name": "torch", "version": "2.10.1"}]}


def sha256_of(text):
    """Return the SHA256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Place:
    """A site with images on a web server, and a catalogue with one of them."""

    def __init__(self, folder, files):
        self.files, self.url = files, f"{files.url}/images"
        self.catalogue = folder / "own/mine/containers/Tool.yaml"
        self.catalogue.parent.mkdir(parents=True)
        self.folder = folder
        old = "tool-full-t29-1.sif"
        self.catalogue.write_text(CATALOGUE.replace("URL", self.url).replace("SUM", sha256_of(old)))
        self.name_lists(f"{self.url}/")
        self.put(old)

    def name_lists(self, *addresses, more=""):
        """Write the profile."""
        (self.folder / "own/mine/site.yaml").write_text(
            f"name: mine\ndescription: x\nimages: {{release_lists: [{', '.join(map(repr, addresses))}]{more}}}\n")

    def put(self, name, stated=True, folder="", listed=True):
        """Put an image and what belongs to it on the server."""
        path = f"/images/{folder}{name}"
        self.files.content[path] = name.encode()
        if stated:
            self.files.content[path.replace(".sif", ".md")] = f"# {name}\n\n{sha256_of(name)}  {name}\n".encode()
            self.files.content[path.replace(".sif", ".json")] = json.dumps(PACKAGES).encode()
        if listed:
            self.index(f"/images/{folder}")

    def index(self, folder="/images/"):
        """Write the index page of a directory, as Apache does."""
        names = {path.removeprefix(folder).partition("/") for path in self.files.content if path.startswith(folder)}
        links = "".join(f'<tr><td><a href="{name}{slash}">{name}</a></td></tr>\n'
                        for name, slash, _ in sorted(names) if name)
        self.files.content[folder] = f"""<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
            <html><head><title>Index of {folder}</title></head><body><table>
            <tr><th><a href="?C=N;O=D">Name</a></th></tr><tr><td><a href="/">Parent Directory</a></td></tr>
            {links}</table><a href="mailto:admin@site.example">us</a></body></html>""".encode()

    def update(self, *arguments):
        """Run the command; return its exit status."""
        return cli.main(["update", "--site", "mine", "--catalogue", str(self.folder / "own"), *arguments])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A site whose catalogue has all images."""
    monkeypatch.setattr(inheritance, "SITES", tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    with serve_files() as files:
        yield Place(tmp_path, files)


def test_a_new_image_becomes_a_complete_record(place, capsys):
    """R-05, R-02: with SHA256 and packages as its release states them, and its URL; the image isn't fetched."""
    assert place.update() == 0
    assert capsys.readouterr() == ("", "the catalogue of mine has all images\n")
    new = "tool-full-t210-2.sif"
    place.put(new)
    place.put("tool-small-t210-2.sif")
    place.files.requests.clear()
    assert place.update("--write") == 0
    said = "".join(capsys.readouterr())
    assert f"{place.url}/: note: images of other kinds than those in the catalogue are left out (flavour: small" in said
    assert "written: 1 new record. " in said
    record = reading.read(site.read("mine", [place.folder / "own"]), place.folder / "own/mine")[-1]
    assert (record.module, record.source, record.sha256, record.size, record.components["torch"]) == (
        "Tool/2.10-full-2", f"{place.url}/{new}#sha256={sha256_of(new)}", sha256_of(new), len(new), "2.10")
    assert "review" not in place.catalogue.read_text()
    asked = [path for path, _ in place.files.requests]
    # the size of both is asked for
    assert (asked.count(f"/images/{new}"), asked.count("/images/")) == (1, 1)
    assert place.update("--quiet") == 0
    assert capsys.readouterr().out == ""


def test_a_directory_per_release(place, capsys):
    """R-05: an address with placeholders stands for all directories that fit, also those of a real web server."""
    folder = place.folder / "served/releases"
    for release in ("t210-2", "other"):
        (folder / release).mkdir(parents=True)
        (folder / release / "tool-full-t210-2.sif").write_text(release)
        (folder / release / "SHA256SUMS").write_text(f"{sha256_of(release)}  tool-full-t210-2.sif\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder.parent)
    http.server.SimpleHTTPRequestHandler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/releases"
        for end in ("/", ""):
            place.name_lists(f"{url}/t{{torch!dotless}}-{{date}}{end}")
            assert place.update() == 1
            said = capsys.readouterr().out
            assert f"+    source: {url}/t210-2/tool-full-t210-2.sif#sha256={sha256_of('t210-2')}\n".replace(
                "source: ", "source: '").replace("\n", "'\n") in said
            assert f"+    sha256: {sha256_of('t210-2')}\n+    size: 6\n" in said
            assert "other" not in said and "warning" not in said
        server.shutdown()


GITHUB = [{"url": "https://api.example/releases/1", "name": "2", "assets": [
    {"url": "https://api.example/assets/1", "name": "NAME", "size": 7, "digest": "sha256:SUM",
     "browser_download_url": "/files/NAME"}]}]
UNREADABLE = "can't be read, so its images are unknown: "
NGINX = [{"name": "old", "type": "directory"}, {"name": "NAME", "type": "file", "size": 7}, {"name": "SHA256SUMS"}]


@pytest.mark.parametrize(("text", "path"), [
    (json.dumps(GITHUB), "/files/NAME"), (json.dumps(NGINX), "/images/NAME"),
    (json.dumps({"images": ["NAME", "SHA256SUMS"]}), "/images/NAME"),
    ("SUM  NAME\n", "/images/NAME"), ("NAME\r\nSHA256SUMS\r\n", "/images/NAME")])
def test_lists_in_other_formats(place, capsys, text, path):
    """R-05: what GitHub, nginx, a script and sha256sum write; SHA256 and size are those of the list, or beside it."""
    name = "tool-full-t210-2.sif"
    place.files.content["/images/list"] = text.replace("NAME", name).replace("SUM", sha256_of("content")).replace(
        f"SHA256{sha256_of('content')}S", "SHA256SUMS").encode()
    place.files.content["/images/SHA256SUMS"] = f"{sha256_of('content')}  {name}\n".encode()
    place.files.content[path.replace("NAME", name)] = b"content"
    place.name_lists(f"{place.url}/list")
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"source: '{place.files.url}{path.replace('NAME', name)}#sha256={sha256_of('content')}'\n" in said
    assert "+    size: 7\n" in said
    assert "warning" not in said


def listed(name):
    """Return what a list in JSON has of an image (dict)."""
    return {"name": name, "sha256": sha256_of(name)}


@pytest.mark.parametrize("following", [
    {"next": "list?page=2"}, {"links": {"self": "list", "next": "/images/list?page=2"}},
    {"_links": {"next": {"href": "?page=2"}}}, '<list?page=1>; rel="prev", <list?page=2>; rel="next"'])
def test_lists_of_several_pages(place, capsys, following):
    """R-05: the next page is what JSON or a header names; it may name the first one again."""
    more = following if isinstance(following, dict) else {"next": None}
    for number, path in enumerate(("/images/list", "/images/list?page=2"), 1):
        name = f"tool-full-t210-{number}.sif"
        place.put(name)
        place.files.content[path] = json.dumps({"images": [listed(name)], **more}).encode()
        if more != following:
            place.files.links[path] = following
    place.name_lists(f"{place.url}/list")
    assert place.update() == 1
    said = "".join(capsys.readouterr())
    assert "\n2 new records; " in said and "warning" not in said
    assert [path for path, _ in place.files.requests].count("/images/list?page=2") == 1


def test_pages_that_are_not_read(place, capsys, monkeypatch):
    """R-05: those of another server, missing ones and those of a list without an end are named; the others count."""
    name = "tool-full-t210-1.sif"
    place.put(name)
    place.name_lists(f"{place.url}/list")
    for following, said in (
            ("http://other.example/list", "list: warning: goes on at http://other.example/list, which isn't read"),
            ("list?page=2", f"list?page=2: warning: {UNREADABLE}"),
            ("http://[", "")):
        place.files.content["/images/list"] = json.dumps({"images": [listed(name)], "next": following}).encode()
        assert place.update() == 1
        shown = "".join(capsys.readouterr())
        assert said in shown and "\n1 new record; " in shown
        assert bool(said) == ("warning" in shown)
    monkeypatch.setattr(lists, "MORE_PAGES", 2)
    for number in range(1, 4):
        place.files.content[f"/images/list?page={number}"] = json.dumps({"next": f"list?page={number + 1}"}).encode()
    place.files.content["/images/list"] = json.dumps({"images": [listed(name)], "next": "list?page=1"}).encode()
    assert place.update() == 1
    assert "list: warning: goes on at " in capsys.readouterr().out


def test_names_with_other_characters(place, capsys):
    """R-05: those that are none of URLs are percent-encoded in requests."""
    name = "tool-für alle-t210-2.sif"
    path = f"/images/{quote(name)}"
    place.files.content["/images/list"] = f"{sha256_of('content')}  {name}\n".encode()
    place.files.content[path] = b"content"
    place.name_lists(f"{place.url}/list")
    assert place.update() == 1
    assert "and can't be added: no family" in capsys.readouterr().out
    assert path in [asked for asked, _ in place.files.requests]


def test_moved_vanished_and_altered_images(place, capsys):
    """R-05: which record, where its image was, where it is now, and what to do; nothing is proposed for it."""
    old = "tool-full-t29-1.sif"
    module, new = "Tool/2.9-full-1", f"{place.url}/new"
    # another size, then another SHA256 stated
    text = place.catalogue.read_text()
    place.catalogue.write_text(text.replace("SUM'}", "").replace("'}", "', size: 1}"))
    assert place.update() == 1
    assert f"{module}: its image {place.url}/{old} was replaced or truncated: it has {len(old)} bytes, not 1" in \
        capsys.readouterr().out
    place.catalogue.write_text(text)
    place.files.content["/images/tool-full-t29-1.md"] = f"{'1' * 64}  {old}\n".encode()
    assert place.update() == 1
    assert f"{module}: {place.url}/tool-full-t29-1.md states another SHA256 for its image than the record, 1111" in \
        capsys.readouterr().out
    # elsewhere, under the same name and under another one
    place.files.content.clear()
    place.name_lists(f"{place.url}/", f"{new}/")
    place.index()
    place.put(old, folder="new/")
    assert place.update() == 1
    said = capsys.readouterr().out
    moved = f"{module}: its image was moved from {place.url}/{old} to {new}"
    assert f"{moved}/{old}: write that as 'source'\n" in said
    assert f"{place.url}/: warning: lists no image: correct the address in 'release_lists' of 'images'" in said
    other = "tool-full-t29-2.sif"
    for end in (".sif", ".md", ".json"):
        content = place.files.content.pop(f"/images/new/tool-full-t29-1{end}")
        place.files.content[f"/images/new/tool-full-t29-2{end}"] = content.replace(old.encode(), other.encode()) \
            if end == ".md" else content
    place.index("/images/new/")
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"{moved}/{other}: write that as 'source', and {other} as 'file'\n" in said
    assert "+" not in said
    # nowhere
    place.files.content.clear()
    place.index()
    place.index("/images/new/")
    assert place.update() == 1
    assert f"{module}: its image is no longer at {place.url}/{old}: bring it back, write another 'source', or" in \
        capsys.readouterr().out


def test_another_name_of_a_known_image(place, capsys):
    """R-12: an image under a name such as latest is named with the record that has it; it is no new record."""
    old, latest = "tool-full-t29-1.sif", "tool-latest.sif"
    place.files.content[f"/images/{latest}"] = old.encode()
    place.files.content["/images/tool-latest.sif.sha256"] = f"{sha256_of(old)} *{latest}\n".encode()
    place.index()
    assert place.update() == 0
    assert f"{latest}: note: is the image of Tool/2.9-full-1 (SHA256 {sha256_of(old)}) under another name; it may be " \
        "another one tomorrow\n" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "said"), [
    (None, f"{UNREADABLE}HOST answers 404 (Not Found)"), ("[1, 2", f"{UNREADABLE}it is not JSON: "),
    ("[" * 100_000, f"{UNREADABLE}it is not JSON: "),
    ('{"message": "log in"}', "lists no image: correct the address"),
    ("<html><a href='https://[::1/x.sif'>x</a></html>", "lists no image: correct the address")])
def test_lists_that_say_nothing(place, capsys, text, said):
    """R-05: a list that is missing, no JSON, or something else is named; nothing is gone then, and the rest is read."""
    place.put("tool-full-t210-2.sif")
    place.name_lists(f"{place.url}/list", f"{place.url}/")
    if text is not None:
        place.files.content["/images/list"] = text.encode()
    assert place.update() == 1
    shown = "".join(capsys.readouterr())
    assert f"{place.url}/list: warning: {said.replace('HOST', place.files.host)}" in shown
    assert "1 new record" in shown and "no longer" not in shown


def test_servers_that_can_t_be_asked(place, capsys):
    """R-05, R-09: no connection, a login, a cut list: nothing is said to be gone; and what to do about the login."""
    place.files.cuts = [30]
    assert place.update() == 1
    assert f"{UNREADABLE}the connection was cut after 30 of " in capsys.readouterr().out
    place.files.password = "secret"
    place.files.is_basic = True
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"{place.url}/: warning: {UNREADABLE}{place.files.host} answers 401 (Unauthorized): files at URLs are " \
        "fetched without a login. Fetch the file yourself, or have it put into a registry" in said
    assert f"Tool/2.9-full-1: it is unknown whether its image is still at {place.url}/tool-full-t29-1.sif: " in said
    place.name_lists("http://127.0.0.1:9/images/")
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"http://127.0.0.1:9/images/: warning: {UNREADABLE}no connection to 127.0.0.1:9: the connection was " in said
    assert "no longer" not in said


def test_a_list_that_has_moved(place, capsys):
    """R-05: links are relative to where the list really is."""
    place.files.moved["/old"] = f"{place.url}/"
    place.put("tool-full-t210-2.sif")
    place.name_lists(f"{place.files.url}/old")
    assert place.update() == 1
    assert f"+    source: '{place.url}/tool-full-t210-2.sif#sha256=" in capsys.readouterr().out


def test_images_that_need_more(place, capsys):
    """R-05, R-02: without a SHA256, or without a family, an image is named with the command that adds it."""
    place.put("tool-full-t210-2.sif", stated=False)
    place.put("box.sif")
    place.files.content["/images/x.sif.sha256"] = b""
    assert place.update() == 1
    said = capsys.readouterr().out
    unknown = "is not in the catalogue, and can't be added: "
    assert f"tool-full-t210-2.sif: warning: {unknown}nothing states its SHA256, so it has to be fetched: `ebsif add " \
        f"{place.url}/tool-full-t210-2.sif`" in said
    assert f"box.sif: warning: {unknown}no family has images with such names: " in said
    place.name_lists(f"{place.url}/", more=", ignored: [box*, '*-2.sif']")
    assert place.update() == 0


def test_a_record_without_a_sha256(place, capsys):
    """R-05: it gets the one that the release states, once, however many lists have the image."""
    name = "tool-full-t210-2.sif"
    place.catalogue.write_text(place.catalogue.read_text() + (
        "  - {family: tool, version: '2.10', date: 2, components: {torch: '2.10', flavour: full}}\n"))
    place.put(name)
    place.put(name, folder="mirror/")
    place.name_lists(f"{place.url}/", f"{place.url}/mirror/")
    assert place.update("--write") == 0
    assert "written: 1 missing SHA256. Next: " in capsys.readouterr().err
    assert f"flavour: full}}, sha256: {sha256_of(name)}}}\n" in place.catalogue.read_text()


@pytest.mark.parametrize("address", ["http://registry.example.org/x", "/images", "https://a:b@registry.example.org/x",
                                     "https://registry.example.org/x?token=3e1c2f7a8b9d4e5f6a7b"])
def test_addresses_that_are_refused(address):
    """R-05, R-09: what could be altered on the way, or has a credential that others could read."""
    with pytest.raises(ValueError, match="should be a URL that begins with https|must not have a user, a password"):
        fieldtypes.is_list_address(address)
