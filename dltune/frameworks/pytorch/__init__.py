"""Everything that touches PyTorch: the native plugin and its way into an unmodified job."""
