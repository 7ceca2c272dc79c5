"""Decide: one planner each for what a plan may hold."""
