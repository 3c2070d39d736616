"""Reports for people, as an HTML page, as Markdown or in a terminal: one run, or several runs compared."""
