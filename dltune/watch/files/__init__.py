"""Causes of slow reading in a running job, observed from outside.

    watch        a job's processes for a time: what they read, how, and what they waited for
      data_files   files that are mapped or open and hold data
      formats      the format of a data file, by its first bytes
      cached       how much of a file is in the page cache, and how it is dropped
      calls        threads that wait for storage, and the call or fault they wait in
      faults       page faults by file and offset
      pattern      sequential, strided or shuffled
      storage      the file system and device below a file
      pressure     the kernel's own account of waiting (PSI)
      lines        the Python that waits
    document     what was seen, with what dltune/findings makes of it
    view         the document as people see it

The kernel's files under /proc need no privilege for one's own processes. What is denied, or known
to lie, is said in `unseen`, and what can be seen otherwise stands.
"""
