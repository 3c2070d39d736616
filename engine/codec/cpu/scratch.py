"""Memory that a thread uses again for arrays that live shortly."""

import threading

import numpy as np


class Scratch(threading.local):
    """Bytes that each thread reuses, because mapping fresh memory would take longer than computing."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, size: int) -> np.ndarray:
        """Return so many bytes of any content, uint8 ``[size]``: the same memory each time."""
        if size > self._memory.size:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size]
