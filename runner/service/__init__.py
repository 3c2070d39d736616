"""Installs the runner as a system service, or for GitHub's own runner."""
