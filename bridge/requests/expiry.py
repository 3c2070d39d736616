"""When requests expire: after that, no runner starts them."""

from __future__ import annotations

import time

from bridge.bus import objects, wire
from bridge.bus.history import View
from bridge.bus.wire import State
from bridge.common import strict_json
from bridge.errors import InfrastructureError, ManifestError
from bridge.manifest import parse_manifest, parse_time
from bridge.system.git import Git


def expires_at(git: Git, view: View) -> float | None:
    """Return when a request expires, in Unix seconds; None if its manifest does not say or cannot be read."""
    try:
        blob = objects.read_blob(git, view.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
        ends = parse_manifest(blob).expires_at if blob is not None else None
    except (InfrastructureError, ManifestError):
        return None
    return parse_time(ends).timestamp() if ends else None


def is_expired(git: Git, view: View) -> bool:
    """Return whether a request expired, by this machine's clock, before a runner took it."""
    if view.stands is not State.REQUESTED:
        return False
    ends = expires_at(git, view)
    return ends is not None and ends < time.time()
