"""Rules that find the causes of slow jobs, one file for each rule, collected by `registry`."""
