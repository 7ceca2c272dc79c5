"""Other processes as /proc shows them, and the pace at which they are looked at.

entry        a small file of /proc at once, or of /sys
stat         what the kernel counts of a process or a thread; its state and parents
threads      a process's threads and what each has had
process      who a process is, what it has read, its memory, whether it may be looked into
maps         the files that it has mapped, and what of them is in its page table
descriptors  the files that it has open, and their positions
tree         the processes of a session, those that descend from one, and both for good
mounts       the file systems that a process sees
pace         looks so seldom that the job does not feel them

Processes end, and users look at those of others. What counts or describes a process or a thread is
None (or empty) when it has ended or may not be seen. What lists the things that a process holds
(`mappings`, `resident`, `plain_files`, `environment`) raises OSError: PermissionError where it may
not be looked into, another when it has ended.
"""
