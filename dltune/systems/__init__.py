"""The research systems, a package each. dltune's core works without them."""
