"""What planners leave in a plan: a section each, and all that cannot be in one."""
