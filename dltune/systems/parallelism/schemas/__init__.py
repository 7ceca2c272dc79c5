"""The documents of the parallelism system, and its section of a plan."""
