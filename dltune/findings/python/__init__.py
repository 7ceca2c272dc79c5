"""Rules on what the job's Python does besides running its steps."""
