"""The space of settings: a file for each thing that is set."""
