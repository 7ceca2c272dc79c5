"""Horovod's ranks: what they do, and how they would do at scale."""
