"""Rules on the ranks of a job, their background threads and Horovod's timeline."""
