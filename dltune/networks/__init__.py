"""Published networks as layers, by code."""
