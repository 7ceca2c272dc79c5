"""Memory over a step of training: when each tensor is needed, and what it costs not to keep it."""
