"""A step of training, whatever framework runs it: nodes, tensors, and who waits for whom."""
