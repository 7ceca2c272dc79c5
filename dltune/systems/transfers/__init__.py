"""The order of parameter transfers, after TicTac."""
