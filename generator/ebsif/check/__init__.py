"""What is wrong with a catalogue and its easyconfigs."""
