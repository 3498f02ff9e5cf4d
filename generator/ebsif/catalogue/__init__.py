"""The catalogue: containers and sites as YAML, read, checked, found and added."""

import os

# before pydantic is imported anywhere: it would look for plugins in everything that is installed, at every start
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
