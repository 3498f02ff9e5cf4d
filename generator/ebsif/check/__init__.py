"""Check a catalogue and its easyconfigs."""
