"""The MLX engine that the bridge's jobs run.

Importing this package is cheap: neither MLX nor NumPy is loaded before a function needs them. MLX is reached
through ``engine.mx`` and mlx-lm through ``engine.lm``, so that a fast BLAS is in place first.
"""
