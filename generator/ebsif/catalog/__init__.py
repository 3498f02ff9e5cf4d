"""The catalog: read, check, search and extend the YAML files of containers and sites."""

import sys
from types import ModuleType

# pydantic would search all installed packages for plugins at every start, and import what that needs; where it is
# arranged in another way, this has no effect
loader = ModuleType("pydantic.plugin._loader")
loader.get_plugins = tuple  # type: ignore[attr-defined]
sys.modules.setdefault(loader.__name__, loader)
