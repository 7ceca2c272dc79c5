"""Rules on the ranks of a job, their background threads and Horovod's timeline.

`order`: 0 for a job that fails or whose figures are incomplete, 1 for threads without a core, 2 for
ranks that wait for one another, 3 for Horovod's cycles, 4 for recording, 5 for missing ranks.
"""
