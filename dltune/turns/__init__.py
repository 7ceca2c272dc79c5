"""Jobs that take turns: what bench, tune and gate start, rotate and measure."""
