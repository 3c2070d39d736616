"""Says what went wrong, so that the operator can tell a bug of the runner from trouble with the bus or the disk."""

import os
import tempfile
import traceback
from pathlib import Path

from bridge.errors import KakeyaError, one_line

# A message names this many of the innermost calls.
_CALLS = 3
# Larger than a heartbeat's small files, which may still fit on a full disk.
_PROBE_BYTES = 1 << 20


def explain(error: Exception) -> str:
    """Return an error's message; for unexpected errors, also the type and where it was raised."""
    if isinstance(error, KakeyaError | OSError):
        return str(error)
    calls = traceback.extract_tb(error.__traceback__)[-_CALLS:]
    where = " > ".join(f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls)
    return one_line(f"a bug of this runner, please report it: {type(error).__name__}: {error} ({where})")


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
