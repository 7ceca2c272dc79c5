"""Rules on a step's ops."""
