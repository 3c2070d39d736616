"""Codecs for K and V vectors. The tables of their format, :mod:``engine.codec.spec``, need no MLX."""
