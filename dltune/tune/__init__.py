"""The settings around the ops, tried on the job itself: rounds, verdicts, a search over them."""
