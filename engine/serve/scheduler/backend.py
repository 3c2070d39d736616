"""The backend over MLX, as ``engine.serve.main`` chooses it."""

import sys

from engine.serve.scheduler.kit import device_of
from engine.serve.scheduler.thread import EngineThread

__all__ = ["EngineThread", "device_in_use", "start"]

start = EngineThread


def device_in_use(name: str | None) -> str:
    """Return the device of a name, as torch calls it: ``cpu``, ``mps`` or ``cuda``.

    Raises:
        BadInput: this machine does not have it.
    """
    if device_of(name) == "cpu":
        return "cpu"
    return "mps" if sys.platform == "darwin" else "cuda"
