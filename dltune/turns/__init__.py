"""Jobs that take turns, a few steps each: their step barriers, and rounds of turns."""
