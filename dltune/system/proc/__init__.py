"""Other processes as /proc shows them, and the pace at which they are sampled.

entry        a small file of /proc at once, or of /sys
stat         the kernel's counts of a process or a thread; its state and parents
threads      a process's threads and the counts of each thread
process      identity of a process, its reads, its memory, and whether it can be inspected
maps         the files that it has mapped, and their pages in its page table
descriptors  the files that it has open, and their positions
tree         the processes of a session, the descendants of a process, and both for good
mounts       the file systems that a process sees
pace         samples seldom enough not to slow down the job

Processes end, and users inspect processes of other users. A function that counts or describes a
process or a thread returns None (or an empty value) when it has ended or access is denied. A
function that lists the things that a process holds (`mappings`, `resident`, `plain_files`,
`environment`) raises OSError: PermissionError if access is denied, another when it has ended.
"""
