"""One folder for each planner."""
