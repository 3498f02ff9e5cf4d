"""Check a catalog and its easyconfigs."""
