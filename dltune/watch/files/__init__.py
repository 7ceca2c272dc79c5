"""Why reading the data is slow: a running job looked at from outside, or a file read in every way.

    watch        a job's processes for a time: what they read, how, and what they waited for
      processes    the process tree, and the kernel's counts of each process and thread
      data_files   files that are mapped or open and hold data; their formats
      cached       how much of a file is in the page cache, and how it is dropped
      calls        threads that wait for storage, and the call or fault they wait in
      faults       page faults by file and offset
      pattern      sequential, strided or shuffled
      storage      the file system and device below a file
      pressure     the kernel's own account of waiting (PSI)
      lines        the Python that waits
      pace         looking so seldom that the job does not feel it
    experiments/ a file read cold by strided readers, by blocks, in shuffled order
    document     what was seen, with what dltune/findings makes of it

The kernel's files under /proc need no privilege for one's own processes. What is denied, or known
to lie, is said in `unseen`, and what can be seen otherwise stands.
"""
