"""Changes between two documents of one kind, and the test if they are more than noise."""
