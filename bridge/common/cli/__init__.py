"""The command lines of all three programs: commands, what they print, and how they end."""
