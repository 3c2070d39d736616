"""The machine that jobs run on: facts, interpreter, models, clock, disk space."""
