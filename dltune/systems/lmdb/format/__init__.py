"""LMDB files read without LMDB: the position of each record, and whether the file is sound.

    datafile        the file itself, opened and read in pieces; its two meta pages
    index           the place of every record of the snapshot (`Index.open`), kept beside the file
    lmdb_binding    passes over a snapshot in native code: the records (`scan`), the structure of
                    the whole file (`verify`)

Data versions 1 (LMDB 0.9) and 3 (LMDB 1.0), 64-bit little-endian, any page size. Trees are walked
by native code (page.h, source.h, tree.h) that checks every length and offset before it follows it.

**Why a writer does no harm.** LMDB never overwrites a page of a snapshot that a reader may hold.
The writer of transaction T takes pages only from those freed by transactions before T - 1
(`mdb_find_oldest` and `mdb_page_alloc` in LMDB's mdb.c, with or without a lock file), and a page of
snapshot N was freed by N + 1 at the earliest. So the first to touch it is writer N + 3. That writer
starts after N + 2 has committed, and that commit overwrites the meta page of N: the two meta pages
take turns. Hence: *as long as the meta page of snapshot N is as it was, all that was read of its
pages is right.* `DataFile.holds` reads it again, after reading. (What LMDB itself excludes with
its lock stays excluded: going back a snapshot with MDB_PREVSNAPSHOT, or copying another file over
this one, while it is in use.)
"""
