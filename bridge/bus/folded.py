"""Paths that are one and the same on a file system that ignores case, as on macOS and Windows.

The paths of answers are ASCII, so there is no other way to spell them.
"""

from __future__ import annotations


class Folded:
    """Paths that can lie beside each other on any file system."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def takes(self, path: str) -> bool:
        """Take a path, unless it or one of its folders is another one's place, or a folder in another spelling."""
        parts = path.split("/")
        places = {"/".join(parts[:i]).lower(): "/".join(parts[:i]) + "/" for i in range(1, len(parts))}
        if path.lower() in self._seen or any(self._seen.get(at, as_) != as_ for at, as_ in places.items()):
            return False
        self._seen |= places
        self._seen[path.lower()] = path
        return True
