"""Rules that say what costs a job its time: a file each, found by `registry`."""
