"""Solves programming problems with a model, and runs each solution against the problem's tests."""
