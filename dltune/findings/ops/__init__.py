"""Rules on the ops of a step."""
