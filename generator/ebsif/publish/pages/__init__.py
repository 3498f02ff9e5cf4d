"""Browsable pages of the catalogue."""
