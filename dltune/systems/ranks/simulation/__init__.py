"""The background threads of a Horovod job of any size, simulated (thesis, chapter 6)."""
