"""A job that is run as `python -m module_job`, from the folder that holds it."""
