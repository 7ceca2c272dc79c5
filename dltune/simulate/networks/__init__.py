"""Published networks by code, as layers."""
