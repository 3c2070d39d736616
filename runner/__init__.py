"""The runner: takes requests from the bus, judges them by its own rules, runs them and answers."""
