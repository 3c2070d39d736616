"""The page, Markdown and the terminal: how a view of runs is written."""
