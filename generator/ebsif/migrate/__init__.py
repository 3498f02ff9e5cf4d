"""Convert hand-written easyconfigs to records of the catalogue."""
