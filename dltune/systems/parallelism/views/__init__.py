"""How the documents of the parallelism system look."""
