"""The catalogue: containers and sites as YAML, read, checked, found and added."""
