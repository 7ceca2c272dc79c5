"""A job that runs ops standalone, made up from their keys. See `__main__`."""
