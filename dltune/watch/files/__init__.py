"""Causes of slow reading in a running job, observed from outside.

    io_watch     a job's processes for a time: their reads and their waits
      data_files   files that are mapped or open and hold data; their formats, by the first bytes
      accesses     threads that wait for storage, and the call or fault they wait in; page faults
                   by file and offset; sequential, strided or shuffled
      storage      the file system and device below a file; the part of a file in the page cache,
                   and a way to drop it
    io_document  the observations, with the conclusions of dltune/findings
    io_view      the document as people see it

In dltune/watch, `host` has the kernel's own account of waiting (PSI), and `stack_samples` the
Python that waits.

The kernel's files under /proc need no privilege for one's own processes. Sources that are denied or
known to be wrong are listed in `unseen`; all other observations remain valid.
"""
