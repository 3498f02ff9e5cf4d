"""The commands on the page of a container, copied from the page and run one after the other."""

import html.parser
import re

import pytest
from parts import Installed
from person import Person
from support import make_wheel


class Commands(html.parser.HTMLParser):
    """The blocks that a page offers to copy, without the notes of a site and scripts to look at."""

    def __init__(self):
        super().__init__()
        self.blocks, self.is_command = [], False

    def handle_starttag(self, tag, attributes):
        if tag == "pre":
            self.is_command = "command" in (dict(attributes).get("data-what") or "")
            self.blocks += [""] if self.is_command else []

    def handle_endtag(self, tag):
        if tag == "pre":
            self.is_command = False

    def handle_data(self, data):
        if self.is_command:
            self.blocks[-1] += data


@pytest.fixture
def person(installed_once, cluster, tmp_path, wheels):
    """A person with an installed module in the catalog, and a Slurm cluster."""
    for name in ("einops", "ipykernel"):
        make_wheel(wheels, name)
    person = Person(installed_once.copy(tmp_path, Installed.WRITABLE), wheels)
    site = person.site
    person.catalogs_example()
    (site.work / "requirements.txt").write_text("greeting\n")
    (site.work / "train.py").write_text("import numpy\nprint('trained')\n")
    own = {"MODULEPATH": site.modules, "EASYBUILD_ROBOT_PATHS": site.work / "easyconfigs"}
    person.environment |= {**cluster.environment, **own}
    yield person
    cluster.slurm("scancel", "-n", "train")


def test_every_command_on_a_page_runs(person):
    """W-09: load, install, extend, notebook and job, as they stand on the page, of an installed container."""
    site = person.site
    person.run("ebsif", "render", "--site", "local", "-o", "easyconfigs")
    said = person.run("ebsif", "docs", "--site", "local", "-o", "pages").stderr
    assert "\nwith all packages of 1 installed module\n" in said
    page = Commands()
    page.feed((site.work / "pages/local/Example/1.0-writable.html").read_text())
    assert [block.split()[0] for block in page.blocks] == ["module", "ebsif", "singularity", "ebsif", "ebsif", "eb"]
    script = "\n".join(["exec 2>&1", site.tool.init, "set -ex", *page.blocks])
    said = person.run("bash", "--noprofile", "--norc", "-c", script).stdout
    assert (site.root(Installed.WRITABLE) / "user-software.squashfs").is_file()
    for line in (
        "trained",
        r".*Example/1.0-writable is already installed.*",
        r"ebsif: installed mine \(Example/\S+-mine-\d+\) .*",
        r"Jupyter offers Example/\S+-lab as .*",
        r"Submitted batch job \d+",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), (line, said)
