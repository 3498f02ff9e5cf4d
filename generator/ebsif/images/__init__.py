"""Images: the content of a SIF file, and what it can use of a machine."""
