"""Search for the division of each operator over devices, after FlexFlow."""
