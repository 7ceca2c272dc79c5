"""How training data is read, and how it can be read faster."""
