"""Do installed modules still work here? One small function for each check; what they compare with is in tables.py."""
