"""Over which devices each operator of a network is divided."""
