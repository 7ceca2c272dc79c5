"""Causes of slow reading in a running job, observed from outside.

    watch        a job's processes for a time: their reads and their waits
      data_files   files that are mapped or open and hold data
      formats      the format of a data file, by its first bytes
      cached       the part of a file in the page cache, and a way to drop it
      calls        threads that wait for storage, and the call or fault they wait in
      faults       page faults by file and offset
      pattern      sequential, strided or shuffled
      storage      the file system and device below a file
      pressure     the kernel's own account of waiting (PSI)
      lines        the Python that waits
    document     the observations, with the conclusions of dltune/findings
    view         the document as people see it

The kernel's files under /proc need no privilege for one's own processes. Sources that are denied or
known to be wrong are listed in `unseen`; all other observations remain valid.
"""
