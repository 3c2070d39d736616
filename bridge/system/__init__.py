"""The only modules that touch outside things: other programs, git, GitHub, the environment, files."""
