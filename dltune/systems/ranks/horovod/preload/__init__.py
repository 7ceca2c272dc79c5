"""Background threads that sleep where MPI spins (NBCS), agree on their sleeps (GS), or rest.

Stock Horovod over MPI, its background thread alone, by a preloaded library. Methods of Pumma's
thesis on parallel I/O and computational imbalance, sections 6.3.1 (GS) and 6.3.2 (NBCS); rests are
ours.

All ranks need the same NBCS and GS, and the library in LD_PRELOAD; `interposer.variables` has both:

    DLTUNE_NBCS    seconds between two tests of a non-blocking collective, up to 1; 0 or unset: off.
                   Where that is less than 400 us, sleeps of a long wait grow up to there
    DLTUNE_GS      cycles from one agreement on the least sleep to the next; 0 or unset: off
    DLTUNE_REST    seconds that a thread with nothing to send can sleep on when its cycle is over,
                   up to 1; 0, unset or together with GS: off
    DLTUNE_SLEEPS  a folder, in which each rank leaves its counts (`counts`) when Horovod shuts
                   down; unset: nowhere. With the others unset, Horovod is only counted.
    DLTUNE_NODE    the host name of dltune's node; on others nothing is done, nor counted

Where ranks differ, or a value is no such number, all are off and rank 0 says so.

The background thread is the thread, other than the main one, that begins Horovod's first cache
synchronisation; what Horovod does before that is left alone. With its response cache off
(HOROVOD_CACHE_CAPACITY=0) there is none, and nothing is done.
"""
