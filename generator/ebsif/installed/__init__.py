"""Examine installations, compare them, and check the machine for them."""
