"""The catalog: read, check, search and extend the YAML files of containers and sites."""

import sys
from types import SimpleNamespace

# pydantic would search all installed packages for plugins at every start, and import what that needs; where it is
# arranged in another way, this has no effect
sys.modules.setdefault("pydantic.plugin._loader", SimpleNamespace(get_plugins=tuple))  # type: ignore[arg-type]
