"""What this machine's cores reach at most: arithmetic and bandwidths, measured once and kept."""
