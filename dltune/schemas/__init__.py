"""Versioned files: everything that passes from one command to the next."""
