"""Records of an LMDB file, read as a training job wants them, by the exact index and without LMDB.

    order       which records an iteration takes, in which order: strided or shuffled, circular;
                and which of them are this rank's
    options     how: one reader per node, direct I/O, coalescing, staggering
    database    the file at a snapshot; a writer that overtakes it is noticed
    pieces      records coalesced into requests
    filling     one thread reads iterations ahead into slots of shared memory
    node        the ranks of a node meet, and get their parts of the slots
    tokens      staggering: so many readers at a time
    reader      all of it: `Reader`
    records     any record by its position: `Records`
    ahead       hints for py-lmdb, which does the reading: `ReadAhead`
    torch       PyTorch's DataLoader (TensorFlow's and Keras' are in dltune.tensorflow.records)

The six optimisations are those of LMDBIO ("Scaling deep learning on high-performance computers",
chapters 3 to 5): LMM (one reader per node), DM (no page read twice between nodes), DIO (direct
I/O), PROV (where records lie is known beforehand), COAL (iterations coalesced), STAG (staggered
groups). For DM the thesis speculates where records lie, and for PROV it needs to know how the
database was made; the index says it exactly, for any database, so both are always on.
"""
