"""Checks whether this host can still write. A full disk is temporary and not the fault of a branch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Larger than a heartbeat's small files, which may still fit on a full disk.
_PROBE_BYTES = 1 << 20


def why_not_writable(folder: Path) -> str | None:
    """Return why no file can be written to a folder, or None if one can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".room-") as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None
