"""Published networks by code: as layers, and as operators."""
