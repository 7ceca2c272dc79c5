"""The commands of the system for reading data."""
