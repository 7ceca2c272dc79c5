"""A network's operators divided over devices: configurations, simulation, search."""
