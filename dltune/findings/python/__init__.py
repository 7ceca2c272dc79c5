"""Rules on Python code that runs outside the steps."""
