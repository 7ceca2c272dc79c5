"""What a step computes again so that it needs less memory."""
