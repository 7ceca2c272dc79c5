"""Settings around the ops: what each does, when it fits, how an unmodified job gets it."""
