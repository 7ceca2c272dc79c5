"""A file read cold in several ways that take turns, as the thesis "Towards Scalable Deep Learning"
(LMDBIO, chapters 3 to 5) measured Caffe's reading on its machines.

    records      where the file's records lie
    reader       one reading process: what it is told to read, and what that cost it
    readers      such processes, kept for the whole session
    ways         what is compared: strided readers, block sizes, shuffled order, the ceiling
    session      all of it, within a time that is told before
    figures      medians of the runs, with their spread
"""
