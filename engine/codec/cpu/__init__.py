"""The Voronoi encoder for CPUs, in NumPy."""
