"""Guess the record of an image."""
