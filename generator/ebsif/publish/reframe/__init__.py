"""Checks for ReFrame, made from a catalog: files/ is what ReFrame reads, writing.py adds the data."""
