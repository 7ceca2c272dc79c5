"""Jobs of several ranks: Horovod and PyTorch's DistributedDataParallel."""
