"""What a clone knows about the commits of a bus: the newest ones, and those that it cannot take."""
