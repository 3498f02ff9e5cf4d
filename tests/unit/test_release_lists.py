"""`ebsif update` and lists of images on web servers: names, URLs and lines of sha256sum, from a real HTTP server."""

import hashlib

import pytest
from ebsif import cli
from ebsif.catalogue import fieldtypes, reading, site
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
OLD, NEW = "tool-full-t29-1.sif", "tool-full-t210-2.sif"
UNREADABLE = "can't be read, so its images are unknown: "


def sha256_of(text):
    """Return the SHA256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Place:
    """A site with images on a web server, and a catalogue with one of them."""

    def __init__(self, folder, files):
        self.files, self.url = files, f"{files.url}/images"
        self.list = f"{self.url}/SHA256SUMS"
        self.catalogue = folder / "own/mine/containers/Tool.yaml"
        self.catalogue.parent.mkdir(parents=True)
        self.folder = folder
        self.catalogue.write_text(CATALOGUE.replace("URL", self.url).replace("SUM", sha256_of(OLD)))
        self.name_lists(self.list)
        self.put(OLD)

    def name_lists(self, *addresses, more=""):
        """Write the profile."""
        (self.folder / "own/mine/site.yaml").write_text(
            f"name: mine\ndescription: x\nimages: {{release_lists: [{', '.join(map(repr, addresses))}]{more}}}\n")

    def put(self, *names, folder=""):
        """Put images on the server, and a list with lines of sha256sum of all of them."""
        for name in names:
            self.files.content[f"/images/{folder}{name}"] = name.encode()
        self.write_sums(folder)

    def write_sums(self, folder=""):
        """Write the list with lines of sha256sum of all that is in a folder."""
        start = f"/images/{folder}"
        lines = [f"{hashlib.sha256(content).hexdigest()}  {path.removeprefix(start)}\n"
                 for path, content in self.files.content.items() if path.startswith(start) and "SUMS" not in path]
        self.files.content[f"{start}SHA256SUMS"] = "".join(lines).encode()

    def write_list(self, text):
        """Write the list as it is."""
        self.files.content["/images/SHA256SUMS"] = text.encode()

    def update(self, *arguments):
        """Run the command; return its exit status."""
        return cli.main(["update", "--site", "mine", "--catalogue", str(self.folder / "own"), *arguments])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A site whose catalogue has all images."""
    monkeypatch.setattr(site, "SITES", tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    with serve_files() as files:
        yield Place(tmp_path, files)


def test_a_new_image_becomes_a_complete_record(place, capsys):
    """R-05, R-02: with SHA256 as its release states it, and its URL; the image isn't fetched."""
    assert place.update() == 0
    assert capsys.readouterr() == ("", "the catalogue of mine has all images\n")
    place.put(NEW)
    place.files.requests.clear()
    assert place.update("--write") == 0
    said = "".join(capsys.readouterr())
    assert "written: 1 new record. " in said
    record = reading.read(site.read("mine", [place.folder / "own"]), place.folder / "own/mine")[-1]
    assert (record.module, record.source, record.sha256, record.size, record.components["torch"]) == (
        "Tool/2.10-full-2", f"{place.url}/{NEW}#sha256={sha256_of(NEW)}", sha256_of(NEW), len(NEW), "2.10")
    assert "review" not in place.catalogue.read_text()
    asked = [path for path, _ in place.files.requests]
    # only its size is asked for
    assert (asked.count(f"/images/{NEW}"), asked.count("/images/SHA256SUMS")) == (1, 1)
    assert place.update("--quiet") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("line", "path"), [
    ("SUM  NAME", "/images/NAME"),
    ("# an image\n\nSUM  NAME\nmore text", "/images/NAME"), ("SUM  HOST/files/NAME", "/files/NAME")])
def test_lines_of_sha256sum(place, capsys, line, path):
    """R-05: names, paths and URLs are relative to the list, which may have other text, too."""
    path = path.replace("NAME", NEW)
    place.files.content[path] = b"content"
    place.write_list(line.replace("NAME", NEW).replace("SUM", sha256_of("content")).replace("HOST", place.files.url))
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"source: {place.files.url}{path}#sha256={sha256_of('content')}\n" in said
    assert "+    size: 7\n" in said and "warning" not in said


def test_a_list_that_has_moved(place, capsys):
    """R-05: links are relative to where the list really is."""
    place.files.moved["/old"] = place.list
    place.put(NEW)
    place.name_lists(f"{place.files.url}/old")
    assert place.update() == 1
    assert f"+    source: {place.url}/{NEW}#sha256=" in capsys.readouterr().out


def test_names_without_a_sha256(place, capsys):
    """R-05, R-02: an image of which the list has no SHA256, or no family, is named with the command that adds it."""
    place.put(NEW, "box.sif")
    place.write_list(f"{OLD}\r\n{NEW}\r\nbox.sif\r\n")
    assert place.update() == 1
    said = capsys.readouterr().out
    unknown = "is not in the catalogue, and can't be added: nothing states its SHA256, so it has to be fetched: "
    for name in (NEW, "box.sif"):
        assert f"{name}: warning: {unknown}`ebsif add {place.url}/{name}`" in said
    place.write_sums()
    assert place.update() == 1
    assert "box.sif: warning: is not in the catalogue, and can't be added: no family has images with such names: " in \
        capsys.readouterr().out
    place.name_lists(place.list, more=", ignored: [box*, '*-2.sif']")
    assert place.update() == 0


def test_moved_vanished_and_altered_images(place, capsys):
    """R-05: which record, where its image was, where it is now, and what to do; nothing is proposed for it."""
    module, new = "Tool/2.9-full-1", f"{place.url}/new"
    # another size, then another SHA256 stated
    text = place.catalogue.read_text()
    place.catalogue.write_text(text.replace("SUM'}", "").replace("'}", "', size: 1}"))
    assert place.update() == 1
    assert f"{module}: its image {place.url}/{OLD} was replaced: it has {len(OLD)} bytes, not 1" in \
        capsys.readouterr().out
    place.catalogue.write_text(text)
    place.write_list(f"{'1' * 64}  {OLD}\n")
    assert place.update() == 1
    assert f"{module}: {place.list} states another SHA256 for its image than the record, 1111" in \
        capsys.readouterr().out
    # elsewhere, under the same name and under another one
    other = "tool-full-t29-2.sif"
    moved = f"{module}: its image was moved from {place.url}/{OLD} to {new}"
    place.name_lists(place.list, f"{new}/SHA256SUMS")
    for name, more in ((OLD, ""), (other, f", and {other} as 'file'")):
        place.files.content.clear()
        place.files.content[f"/images/new/{name}"] = OLD.encode()
        place.write_sums("new/")
        place.write_list("")
        assert place.update() == 1
        said = capsys.readouterr().out
        assert f"{moved}/{name}: write that as 'source'{more}\n" in said
        assert f"{place.list}: warning: lists no image: " in said
        assert "+" not in said
    # nowhere
    place.files.content.clear()
    place.write_list("")
    place.write_sums("new/")
    assert place.update() == 1
    assert f"{module}: its image is no longer at {place.url}/{OLD}: bring it back, write another 'source', or" in \
        capsys.readouterr().out


def test_another_name_of_a_known_image(place, capsys):
    """R-12: an image under a name such as latest is named with the record that has it; it is no new record."""
    place.files.content["/images/tool-latest.sif"] = OLD.encode()
    place.write_sums()
    assert place.update() == 0
    assert f"tool-latest.sif: note: is the image of Tool/2.9-full-1 (SHA256 {sha256_of(OLD)}) under another name" in \
        capsys.readouterr().out


@pytest.mark.parametrize(("text", "said"), [
    (None, f"{UNREADABLE}HOST answers 404 (Not Found)"), ('{"message": "log in"}', "lists no image: it should have "),
    ("https://[::1/x.sif\nfile:///etc/x.sif\n", "lists no image: it should have ")])
def test_lists_that_say_nothing(place, capsys, text, said):
    """R-05: a list that is missing, or something else, is named; nothing is gone then, and the rest is read."""
    place.put(NEW)
    place.name_lists(f"{place.url}/list", place.list)
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
    assert f"{place.list}: warning: {UNREADABLE}{place.files.host} answers 401 (Unauthorized): lists are read " \
        "without a login. Add its images by hand with `ebsif add`, or" in said
    assert f"Tool/2.9-full-1: it is unknown whether its image is still at {place.url}/{OLD}: " in said
    place.name_lists("http://127.0.0.1:9/images")
    assert place.update() == 1
    said = capsys.readouterr().out
    assert f"http://127.0.0.1:9/images: warning: {UNREADABLE}no connection to 127.0.0.1:9: the connection was " in said
    assert "no longer" not in said


def test_a_record_without_a_sha256(place, capsys):
    """R-05: what the list states is named, to be written into the record."""
    place.catalogue.write_text(place.catalogue.read_text() + (
        "  - {family: tool, version: '2.10', date: 2, components: {torch: '2.10', flavour: full}}\n"))
    place.put(NEW)
    assert place.update() == 0
    assert f"the record has no SHA256; {place.list} states {sha256_of(NEW)}\n" in capsys.readouterr().out


@pytest.mark.parametrize("address", ["http://registry.example.org/x", "/images", "https://a:b@registry.example.org/x",
                                     "https://registry.example.org/x?token=3e1c2f7a8b9d4e5f6a7b"])
def test_addresses_that_are_refused(address):
    """R-05, R-09: what could be altered on the way, or has a credential that others could read."""
    with pytest.raises(ValueError, match="should be a URL that begins with https|must not have a user, a password"):
        fieldtypes.is_list_address(address)
