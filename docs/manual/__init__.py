"""Build the project's own web pages from its documents, and the reference from its code."""
