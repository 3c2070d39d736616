"""The client of a git-bus bridge, and the formats, evidence gate and bus that ``engine`` and ``runner`` use."""
