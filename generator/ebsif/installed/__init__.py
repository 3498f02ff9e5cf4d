"""Installations: their records, compared and looked at."""
