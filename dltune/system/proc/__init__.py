"""Other processes as /proc shows them, and the pace at which they are sampled.

stat     the kernel's counts of a process and of each of its threads; state and parents;
         the processes of a session, the descendants of a process, and both for good;
         samples seldom enough not to slow down the job
process  identity of a process, its reads, its memory, and whether it can be inspected;
         the files that it has mapped, and their pages in its page table;
         the files that it has open, and their positions; its Python stacks

`dltune.system.kernel_files` reads a small file of /proc or /sys at once, and lists the file systems
that a process sees.

Processes end, and users inspect processes of other users. A function that counts or describes a
process or a thread returns None (or an empty value) when it has ended or access is denied. A
function that lists the things that a process holds (`mappings`, `resident`, `plain_files`,
`environment`) raises OSError: PermissionError if access is denied, another when it has ended.
"""
