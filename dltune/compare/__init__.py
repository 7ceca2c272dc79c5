"""What changed between two documents of one kind, and whether it is more than noise."""
