"""Views of the documents of the parallelism system."""
