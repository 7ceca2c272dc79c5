"""Groups of gradients of PyTorch's DistributedDataParallel that travel together."""
