"""The documents of the system for jobs of several ranks."""
