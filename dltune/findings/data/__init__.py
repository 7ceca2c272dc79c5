"""Rules on data: waits of steps, reading of the job, and measured ways to read a file.

`order`: 0 for a wait for storage, 1 for steps that wait for data, 2 to 4 for the ways in which the
job reads its files, 5 for a job that reads well or no file, 6 to 8 for other ways to read a file.
"""
