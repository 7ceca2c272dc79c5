"""A file read cold in several ways that take turns, as the thesis "Towards Scalable Deep Learning"
(LMDBIO, chapters 3 to 5) measured Caffe's reading on its machines.

    records      positions of the file's records
    reader       one reading process: its task, and the cost of the task
    readers      such processes, kept for the whole session
    ways         the comparison: strided readers, block sizes, shuffled order, the ceiling
    session      all of it, within a time that is fixed before
    figures      medians of the runs, with their spread
"""
