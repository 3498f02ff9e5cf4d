"""Easyconfigs of today's style, read as records of the catalogue."""
