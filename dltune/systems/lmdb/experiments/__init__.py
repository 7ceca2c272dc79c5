"""A file read cold in several ways that take turns, as the thesis "Towards Scalable Deep Learning"
(LMDBIO, chapters 3 to 5) measured Caffe's reading on its machines.

    reader       one reading process: its task, and the cost of the task
    runs         the file's records, reading processes kept for the session, the compared ways:
                 strided readers, block sizes, shuffled order, the ceiling
    session      all ways in turns, within a time that is announced before; medians and spread
"""
