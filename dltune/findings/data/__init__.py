"""Rules on data: how steps wait for it, how a job reads it, a file that was read in every way."""
