"""Starting the runner by itself: as a service of the system, or for GitHub's own runner."""
