"""The runner: takes requests from the bus, checks them against its own rules, runs them and answers."""
