"""What the easyblocks use of EasyBuild, which has no type hints: for mypy only, see [tool.mypy] in pyproject.toml."""
from typing import Any

# what isn't in these files
def __getattr__(name: str) -> Any: ...
