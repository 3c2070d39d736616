"""Connections, bodies, streams, the guard before them, and the page."""
