"""Plots, as SVG and as text."""
