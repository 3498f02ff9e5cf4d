"""Images: what a SIF file holds, and what it can use of a machine."""
