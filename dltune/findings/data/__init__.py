"""Rules on how training data is read: by a job that was watched, or a file in every way."""
