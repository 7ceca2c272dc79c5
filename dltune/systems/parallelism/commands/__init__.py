"""Commands that the parallelism system adds to the command line."""
