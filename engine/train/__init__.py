"""Training of drafters and restorers for any model that mlx-lm loads."""
