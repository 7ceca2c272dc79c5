"""Rules on the cores that a job has, and who else wants them."""
