"""Native code that is built where it is first used, and what several native parts share."""
