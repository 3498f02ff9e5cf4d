"""Easyconfigs of today's style become records of the catalogue."""
