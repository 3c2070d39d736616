"""Codecs for K and V vectors. The tables of their format, ``engine.codec.spec``, need no MLX."""
