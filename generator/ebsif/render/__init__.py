"""Render easyconfigs from the catalogue."""
