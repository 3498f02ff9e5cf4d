"""The catalogue: read, check, search and extend the YAML files of containers and sites."""

import os

# before any import of pydantic, which would otherwise search all installed packages for plugins at every start
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
