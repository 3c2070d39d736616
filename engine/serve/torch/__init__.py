"""The backend over transformers and torch. Imports no MLX."""
