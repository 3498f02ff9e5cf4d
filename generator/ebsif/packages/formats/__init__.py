"""The formats in which users bring their requirements."""
