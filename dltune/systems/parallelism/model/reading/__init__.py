"""A profiled step as layers: what its ops are for, the operators they make, what these read."""
