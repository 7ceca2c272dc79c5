"""Rules on memory: how it grows, and what is short."""
