"""Requests of agents that may write one branch only: they travel on that branch, and a runner forwards them."""
