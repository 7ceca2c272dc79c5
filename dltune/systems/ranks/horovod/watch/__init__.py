"""Horovod's ranks watched from outside, never stopped.

memory           another process's stacks, read without stopping it
elf              where functions lie in a library
horovod_library  Horovod's library in a process: which, where, and its background loop's code
ranks            a process as a rank: its number, settings, versions, cores
rank_seen        a rank while it is watched, and what its threads used, short-lived ones included
roles            what a thread is there for
ending           when a rank ended, and how
sleeps           the background thread's sleeps: how long it asked for, when it ran again
progress         whether a rank gets on
hang             ranks that hang, told from those that wait for them
watch            all of this over a time
document         what was seen, as the document tells it
merge            reports of several hosts in one
"""
