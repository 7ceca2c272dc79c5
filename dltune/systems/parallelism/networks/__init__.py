"""Published networks as operators that can be divided."""
