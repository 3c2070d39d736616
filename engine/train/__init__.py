"""Training: the recipe of the bundled tiny family, and drafters for any model that mlx-lm loads."""
