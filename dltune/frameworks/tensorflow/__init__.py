"""Everything that touches TensorFlow: the native plugin and its way into an unmodified job."""
