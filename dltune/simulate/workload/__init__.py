"""What a job's step is to a simulator: ops with their times at each way to run, on a machine."""
