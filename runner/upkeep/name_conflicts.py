"""Branch names in conflict: git cannot hold ``mac-bridge`` beside ``mac-bridge/x``, so it blocks all requests."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.bus import exact_refs
from bridge.errors import InfrastructureError, ProcessError
from runner.bus.bus import Bus


def squatters(bus: Bus) -> list[str]:
    """Return the branches on the bus that block requests.

    Raises:
        InfrastructureError: the bus cannot be reached.
    """
    try:
        return [name for name in folders(bus.patterns) if exact_refs.find_branch(bus.git, bus.url, name)]
    except ProcessError as error:
        raise InfrastructureError(f"cannot list the bus: {error.summary()}", code="unreachable") from error


def folders(patterns: Sequence[str]) -> list[str]:
    """Return each name that request branches need as a folder, such as ``claude`` for ``claude/mac-bridge-*``."""
    names: dict[str, None] = {}
    for pattern in patterns:
        parts = pattern.split("/")[:-1]
        names |= {"/".join(parts[: i + 1]): None for i in range(len(parts))}
    return list(names)


def alert(names: Sequence[str]) -> str:
    """Return the message for the operator."""
    return f"no request can be made below {', '.join(map(ascii, names))}: a branch of that name is on the bus"
