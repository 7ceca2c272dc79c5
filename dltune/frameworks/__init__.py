"""Frameworks that jobs run on, and what dltune can do in a job of each."""
