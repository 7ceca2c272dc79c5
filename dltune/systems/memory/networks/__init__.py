"""Networks as the memory of a GPU sees them: cuDNN's workspaces."""
