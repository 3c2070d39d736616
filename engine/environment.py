"""The engine's one door to the environment."""

import os


def get(name: str) -> str | None:
    """Return the variable's value, or None where it is unset or empty."""
    return os.environ.get(name) or None
