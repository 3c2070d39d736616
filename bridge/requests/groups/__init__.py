"""Groups: the requests of one sweep over a preset's parameters, one for each point."""
