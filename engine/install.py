"""How the engine is installed: the one sentence about it, for every message that says something is missing.

No message suggests to install the project by name: nobody has registered that name on a public index, so a stranger
could.
"""

import sys

ENGINE = "mac" if sys.platform == "darwin" else "cpu"
PARITY = "parity"


def how(*more: str) -> str:
    """Return how to install the engine's extra, and ``more`` extras with it, for this interpreter."""
    extras = ",".join((ENGINE, *more))
    return f"in a checkout of kakeya-bridge: {sys.executable} -m pip install '.[{extras}]'"


def weights() -> str:
    """Return how to install the bundled weights, which belong to every engine extra, for this interpreter."""
    return f"in a checkout of kakeya-bridge: {sys.executable} -m pip install ./weights"
