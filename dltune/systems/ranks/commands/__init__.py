"""The commands of the system for jobs of several ranks."""
