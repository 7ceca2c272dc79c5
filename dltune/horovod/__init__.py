"""Horovod's ranks: what they do, how they would do at scale, and a plan for their allreduce."""
