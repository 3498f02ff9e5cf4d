"""The frame of all pages: base.html.j2, with the style and the scripts in static/, for any program that makes pages."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebsif.templating import environment

STATIC = Path(__file__).parent / "static"


def copy_static(directory: Path) -> None:
    """Copy style, scripts and icon to the directory of the pages."""
    shutil.copytree(STATIC, directory / "static", ignore=shutil.ignore_patterns("__pycache__"))


def write(directory: Path, address: str, template: str, packages: Sequence[str] = (), **values: Any) -> None:
    """Write a page; all values are escaped."""
    path = directory / address
    path.parent.mkdir(parents=True, exist_ok=True)
    page = environment(*packages, "ebsif.publish.pages", html=True).get_template(f"{template}.j2")
    text = page.render(root="../" * address.count("/"), here=address, **values)
    path.write_text(text, encoding="utf-8")
