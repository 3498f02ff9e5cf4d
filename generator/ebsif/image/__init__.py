"""Images: what is in a SIF file, and what it can use of a machine."""
