"""Checks for ReFrame, made from a catalogue: files/ is what ReFrame reads, writing.py adds the data."""
