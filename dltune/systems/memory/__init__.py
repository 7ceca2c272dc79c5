"""Memory planning of a training step, after SuperNeurons."""
