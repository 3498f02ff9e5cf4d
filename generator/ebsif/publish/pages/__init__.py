"""Browsable pages of the catalog."""
