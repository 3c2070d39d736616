"""Kernels for Apple's and NVIDIA's GPUs."""
