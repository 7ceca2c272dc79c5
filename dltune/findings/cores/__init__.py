"""Rules on the cores of a job, and on other processes that use them."""
