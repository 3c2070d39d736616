"""The codecs once more in plain NumPy: slow, literal, and the oracle that the MLX code is tested against.

Arithmetic is float32 in the order that the MLX code uses, so that codes agree bit for bit on the CPU; the
lattice steps are written as they stand in the literature.
"""
