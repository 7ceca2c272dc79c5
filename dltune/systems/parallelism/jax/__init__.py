"""The adapter to JAX, and to Keras on it: one process for each device of a plan."""
