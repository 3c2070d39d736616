"""Whether this host can still write: a full disk is no fault of a branch, and passes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# More than the small files of a heartbeat, which may still fit when nothing else does.
_PROBE_BYTES = 1 << 20


def why_not_writable(folder: Path) -> str | None:
    """Return why no file can be written in a folder, None if it can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".room-") as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None
