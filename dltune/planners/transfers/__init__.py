"""The order in which parameters travel from servers to workers (TicTac)."""
