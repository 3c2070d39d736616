"""One harness for all that measures: arms, schedule, rows, journal, report."""
