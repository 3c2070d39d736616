"""Arrays that a run makes once and reads again when it goes on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np


def made_once(kept: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return what ``make`` returns; the first time it is written to the ``.npy`` file ``kept``, then read from it."""
    if kept.exists():
        found: np.ndarray = np.load(kept)
        return found
    made = make()
    np.save(kept, made)
    return made
