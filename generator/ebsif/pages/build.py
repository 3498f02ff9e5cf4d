"""Build web pages about the containers of sites, from the catalogue, with Sphinx."""

import io
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from easybuild.easyblocks.generic.container.requirements import requirement_text, stages_of

from ebsif import version
from ebsif.catalogue import selection
from ebsif.catalogue.container import Container
from ebsif.catalogue.families import as_parameter
from ebsif.catalogue.site import Account, Site
from ebsif.errors import EbsifError
from ebsif.installed import lock
from ebsif.jobs import job
from ebsif.render import easyconfig
from ebsif.templating import environment

# Marks a directory that contains only our pages, so that the next run may replace it.
MARKER = ".ebsif-docs"

STATIC = ("containers.js", "containers.css")

# Sphinx's configuration, in place of a conf.py.
CONFIGURATION = {
    "html_theme": "furo", "html_title": "Containers", "project": "ebsif", "release": version(),
    "html_static_path": ["_static"], "html_css_files": ["containers.css"], "html_js_files": ["containers.js"],
    "html_use_index": False, "html_show_sphinx": False, "html_copy_source": False, "html_show_copyright": False,
    # the pages show names and commands, in which quotes and hyphens must not change
    "smartquotes": False, "highlight_language": "none", "exclude_patterns": ["_static"],
}


class DocumentingError(EbsifError):
    """The pages can't be built; the message says why and what to do."""


@dataclass(frozen=True)
class Page:
    """A container, the previous one in the catalogue, and the differences between them."""

    container: Container
    before: Optional[Container]
    changes: list[lock.Change]

    @property
    def address(self) -> str:
        """Path of the page, relative and without suffix."""
        return f"{self.container.site.name}/{self.container.module}"


def pages(containers: Iterable[Container]) -> list[Page]:
    """
    Return the pages of all containers.

    Parameters
    ----------
    containers
        All containers of a site.
    """
    earlier, named = {}, {}
    for container in sorted(containers, key=selection.date_key):
        before = named.setdefault(container.name, [])
        earlier[container] = next((one for one in reversed(before) if one.file_name != container.file_name), None)
        before.append(container)
    return [Page(one, earlier[one], changes(earlier[one], one)) for one in containers]


def changes(earlier, container):
    """Return the differences between the components of two containers (list of lock.Change)."""
    return lock.differences("", selection.components_of(earlier), selection.components_of(container)) if earlier else []


def build(sites: list[tuple[Site, list[Container]]], directory: Path) -> int:
    """
    Build the pages of sites in a directory, which is replaced as a whole when they are complete.

    Parameters
    ----------
    sites
        The sites and their containers.
    directory
        Directory for the HTML: missing, empty, or written by this function earlier.

    Returns
    -------
    int
        The number of containers.

    Raises
    ------
    DocumentingError
        If Sphinx is missing or fails, or the directory contains other files.
    """
    directory = directory.resolve()
    check_place(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as work:
        source, made = Path(work) / "source", Path(work) / "html"
        number = write_sources(sites, source)
        run_sphinx(source, made, Path(work) / "doctrees")
        (made / MARKER).write_text("Made by ebsif docs, which replaces this directory as a whole.\n", encoding="utf-8")
        earlier = Path(work) / "earlier"
        if directory.exists():
            directory.rename(earlier)
        try:
            made.rename(directory)
        except OSError:
            if earlier.exists():
                earlier.rename(directory)
            raise
    return number


def check_place(directory):
    """Raise DocumentingError if the directory contains other files, which would be lost."""
    if directory.exists() and not directory.is_dir():
        raise DocumentingError(f"{directory} is not a directory")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MARKER).is_file():
        raise DocumentingError(f"{directory} contains files that `ebsif docs` did not make and would delete: name a "
                               "new directory")


def write_sources(sites, source):
    """Write the sources for Sphinx below a directory; return the number of containers."""
    static = source / "_static"
    static.mkdir(parents=True)
    for name in STATIC:
        (static / name).write_text(template(name).render(), encoding="utf-8")
    by_site = [(site, pages(containers)) for site, containers in sites]
    everything = [page for _, some in by_site for page in some]
    (source / "table.html").write_text(table(everything, [site.name for site, _ in by_site]), encoding="utf-8")
    write(source / "index.rst", "index.rst", sites=[site for site, _ in by_site], number=len(everything))
    for site, some in by_site:
        write(source / site.name / "index.rst", "site.rst", site=site, pages=some)
        for page in some:
            same_name = [other for other in some if other.container.name == page.container.name]
            write(source / f"{page.address}.rst", "container.rst", **values_of(page, same_name))
    return len(everything)


def template(name):
    """Return a template of the pages (jinja2.Template)."""
    return environment("ebsif.pages").get_template(f"{name}.j2")


def write(path, name, **values):
    """Write a source for Sphinx from its template."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template(name).render(rst=escape, literal=indent, **values), encoding="utf-8")


def values_of(page, others):
    """Return the values for the template of a container's page (dict)."""
    container = page.container
    return {
        "page": page, "container": container, "parameters": easyconfig.parameters(container),
        "script": job_script(container),
        "inside": selection.components_of(container), "requirements": requirements(container),
        "same_image": [other for other in others
                       if other is not page and other.container.file_name == container.file_name],
        "newer": next((other for other in others if other.before is container), None),
    }


def requirements(container):
    """Return the requirements of a container as text (str), with a heading for each stage."""
    if not container.venv or not container.requirements:
        return ""
    stages = stages_of(as_parameter(container.requirements))
    texts = [requirement_text(stage.get("requirements")).strip() for stage in stages]
    if not container.stages:
        return "\n".join(texts)
    return "\n\n".join(f"# stage {stage.get('name', number)}\n{text}".rstrip()
                       for number, (stage, text) in enumerate(zip(stages, texts), 1))


def job_script(container):
    """Return an example of a batch script (str): a training on two nodes, with a placeholder for the account."""
    site = container.site
    account = "your_account" if site.scheduler.account.required else None
    # don't publish the account of the user who builds the pages
    anybody = site.model_copy(update={"scheduler": site.scheduler.model_copy(update={"account": Account()})})
    request = job.Request(module=container.module, command=("train.py",), nodes=2, account=account)
    return job.script(request, anybody)


def table(some, site_names):
    """Return the table of all containers with its filter, in HTML (str)."""
    versions = {}
    for page in some:
        for name, found in selection.components_of(page.container).items():
            versions.setdefault(name, set()).add(found)
    versions = {name: sorted(versions[name], key=selection.version_key) for name in sorted(versions)}
    rows = [(page, json.dumps({name: versions[name].index(version)
                               for name, version in selection.components_of(page.container).items()}))
            for page in some]
    return template("table.html").render(rows=rows, versions=json.dumps(versions), sites=site_names)


def escape(text):
    """Return a text in one line (str), escaped for reStructuredText."""
    return re.sub(r"([^A-Za-z0-9 ])", r"\\\1", " ".join(str(text).split()))


def indent(text):
    """Return a text (str) as the content of a literal block."""
    # splitlines: Sphinx begins a new line at the same characters
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


def run_sphinx(source, made, doctrees):
    """Build the HTML; a warning is an error, because it means that a page is wrong."""
    try:
        from sphinx.application import Sphinx
        from sphinx.errors import SphinxError
        from sphinx.util.docutils import docutils_namespace
    except ImportError:
        raise DocumentingError(
            "building the pages needs Sphinx, which is not installed: pip install 'ebsif[docs]'") from None
    problems = io.StringIO()
    try:
        with docutils_namespace():
            application = Sphinx(source, None, made, doctrees, "html", confoverrides=CONFIGURATION, status=None,
                                 warning=problems)
            application.build()
    except (SphinxError, OSError) as error:
        raise DocumentingError(f"Sphinx can't build the pages: {error}") from None
    if problems.getvalue():
        raise DocumentingError(f"Sphinx can't build the pages without warnings:\n{problems.getvalue().strip()}")
