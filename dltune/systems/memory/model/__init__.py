"""Memory over a step of training: when each tensor is needed, and the cost of not keeping it."""
