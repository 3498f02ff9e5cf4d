"""Do installed modules still work here? One small function for each check, beside what it compares with."""
