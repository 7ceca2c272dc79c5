"""Starting an unmodified job, hearing from its processes, and ending it."""
