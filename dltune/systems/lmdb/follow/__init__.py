"""Read-ahead hints from outside an unmodified job, by a separate process.

    frontier    where in a file the job reads now, according to its page tables and file positions
    hints       requests to the kernel, from there
    __main__    the process: python -m dltune.systems.lmdb.follow, started by `started`
    start       beginning and ending it

It sees what the job has touched, never what it will want: for a job that reads on, ahead of it; for
one that reads in random order, the whole file once, from front to back, when that fits into memory.
"""
