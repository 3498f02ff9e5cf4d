"""Read TOML files."""

from pathlib import Path
from typing import Any

from ebsif.packages.formats.wanted import RequirementsError

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib


def load(path: Path) -> dict[str, Any]:
    """
    Return the content of a TOML file.

    Raises
    ------
    RequirementsError
        If it is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise RequirementsError(f"{path} can't be read: {error}") from None
