"""Arrays that a run makes once and reads again when it goes on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np


def made_once(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return what ``make`` returns; the first time it is written to the ``.npy`` file ``path``, then read from it."""
    if path.exists():
        stored: np.ndarray = np.load(path)
        return stored
    array = make()
    np.save(path, array)
    return array
