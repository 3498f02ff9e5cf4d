"""Render easyconfigs from the catalog."""
