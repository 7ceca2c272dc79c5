"""Rules that find the causes of slow jobs: one function for each rule, one file for each theme."""
