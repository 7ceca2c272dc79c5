"""Horovod's ranks watched from outside, never stopped.

libraries  Horovod's and PyTorch's libraries in a process: which, where, and the code of the
           background loop; addresses of functions in a library;
           another process's stacks, read without stopping it;
           the background thread's sleeps: how long it asked for, when it ran again
ranks      a process as a rank: its number, settings, versions, cores; the role of a thread;
           a rank while it is watched, and its threads' use, short-lived threads included;
           when a rank ended, and how
hang       progress of a rank, or none; ranks that hang, apart from those that wait for them
watch      all of this over a time
document   the observations as a document; reports of several hosts in one
"""
