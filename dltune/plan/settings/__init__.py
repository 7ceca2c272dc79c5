"""Settings around the ops: what each does, when it fits, how an unmodified job gets it.

`space` holds the entries. `choices` derives the effects of a set of choices on one job.
"""
