"""Doors to outside things: other programs, git, GitHub, the environment, files and their formats."""
