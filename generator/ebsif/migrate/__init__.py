"""Convert hand-written easyconfigs to records of the catalog."""
