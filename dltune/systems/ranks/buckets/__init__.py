"""Which gradients of PyTorch's DistributedDataParallel travel together."""
