"""Horovod's ranks watched from outside, never stopped.

memory           another process's stacks, read without stopping it
elf              addresses of functions in a library
horovod_library  Horovod's library in a process: which, where, and its background loop's code
ranks            a process as a rank: its number, settings, versions, cores
rank_seen        a rank while it is watched, and its threads' use, short-lived threads included
roles            the role of a thread
ending           when a rank ended, and how
sleeps           the background thread's sleeps: how long it asked for, when it ran again
progress         progress of a rank, or none
hang             ranks that hang, apart from those that wait for them
watch            all of this over a time
document         the observations as a document
merge            reports of several hosts in one
"""
