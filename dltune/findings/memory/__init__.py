"""Rules on memory that grows, is short, or is mapped again in each step."""
