"""The harness of all measurements: arms, schedule, rows, journal, report."""
