"""Easyconfigs, rendered from the catalogue."""
