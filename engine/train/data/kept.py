"""Arrays that a run makes once and reads again when it goes on."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from bridge.common.whole_files import written_whole


def made_once(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the result of ``make``; it is written to the ``.npy`` file ``path`` once, and then read from it."""
    if path.exists():
        # An earlier version may have left the file cut off.
        with suppress(ValueError, EOFError):
            stored: np.ndarray = np.load(path)
            return stored
    array = make()
    with written_whole(path) as part:
        np.save(part, array)
    return array
