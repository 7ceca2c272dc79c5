"""Settings around the ops: what each does, when it fits, how an unmodified job gets it.

`space` holds the entries, `applied` what a set of choices comes to for one job.
"""
