"""Taking requests from the bus one after another: poll, decide, claim, run, answer."""
