"""Ranks of Horovod: observed from outside, recorded, and changed by a preloaded library."""
