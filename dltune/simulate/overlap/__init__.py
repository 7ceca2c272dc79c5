"""Transfers and the ops that wait for them: orders (TicTac's and ours), bounds, efficiency."""
