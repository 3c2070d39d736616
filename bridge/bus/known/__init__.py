"""A clone's knowledge about the commits of a bus: the newest ones, and commits that it cannot fetch."""
