"""How to install the engine: the one sentence that every message about a missing engine uses.

No message suggests to install the project by name: nobody has registered that name on a public index, so a stranger
could.
"""

from __future__ import annotations

import sys
from pathlib import Path

ENGINE = "mac" if sys.platform == "darwin" else "cpu"
PARITY, SERVE = "parity", "serve"

# The extra that brings a module which jobs import.
EXTRAS = {
    **dict.fromkeys(("bridge", "engine", "mlx", "mlx_lm", "runner"), ENGINE),
    **dict.fromkeys(("fastapi", "llguidance"), SERVE),
    "dflash": PARITY,
}


def client(extra: str) -> str:
    """Return how to install an extra that needs no engine, for the interpreter that runs this."""
    return f"In a checkout of kakeya-bridge: {sys.executable} -m pip install '.[{extra}]'"


def how(*more: str, python: str | Path = "python3") -> str:
    """Return how to install the engine's extra, and ``more`` extras with it, for an interpreter."""
    extras = ",".join(dict.fromkeys((ENGINE, *more)))
    return f"In a checkout of kakeya-bridge: {python} -m pip install '.[{extras}]'"
