"""A job under its own settings, watched from outside for some seconds."""
