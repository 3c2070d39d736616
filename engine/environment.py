"""The engine's one door to the environment."""

import os


def get(name: str) -> str | None:
    """Return the variable's value, or None if it is unset or empty."""
    return os.environ.get(name) or None


def set_offline() -> None:
    """Keep huggingface_hub from the network. Only counts before that package is imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
