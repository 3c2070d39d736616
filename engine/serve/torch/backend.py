"""The backend over torch, as ``engine.serve.main`` chooses it."""

import engine.torch  # noqa: F401 - first: it says how to install what is absent
from engine.serve.torch.device import device_of
from engine.serve.torch.kit import TorchThread

__all__ = ["TorchThread", "device_in_use", "start"]

start = TorchThread


def device_in_use(name: str | None) -> str:
    """Return the device of a name: ``cpu``, ``mps`` or ``cuda``.

    Raises:
        BadInput: this machine does not have it.
    """
    return str(device_of(name).type)
