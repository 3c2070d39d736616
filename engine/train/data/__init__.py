"""The data on which models are trained."""
