"""Horovod's ranks watched from outside, never stopped.

memory        another process's stacks, read without stopping it
elf           where functions lie in a library
library       Horovod's library in a process: which, where, and the code of its background loop
ranks         a process as a rank: its number, settings, versions, cores
roles         what a thread is there for
usage         what threads used of the cores, those that come and go included
ending        when a rank ended, and how
sleeps        the background thread's sleeps: how long it asked for, when it ran again
progress      whether a rank gets on
hang          ranks that hang, told from those that wait for them
watch         all of this over a time
document      what was seen, as the document tells it
diagnosis     what follows
merge         reports of several hosts in one
"""
