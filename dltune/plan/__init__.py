"""Plans, the interface of planners, and one folder for each planner of core."""
