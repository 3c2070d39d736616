"""Compares the backends over MLX and torch on one model. Torch computes in a process of its own."""
