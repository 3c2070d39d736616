"""Reports for people: one view of a run, or of several beside each other, as a page, as Markdown or in a terminal."""
