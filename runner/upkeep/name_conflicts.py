"""Branch names in conflict: git cannot hold ``mac-bridge`` beside ``mac-bridge/x``, so it blocks all requests."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.bus import exact_refs
from bridge.errors import InfrastructureError, ProcessError
from bridge.system import git_output
from runner.bus.bus import Bus

_HEADS = "refs/heads/"


def squatters(bus: Bus) -> list[str]:
    """Return the branches on the bus that block requests.

    Raises:
        InfrastructureError: the bus cannot be reached.
    """
    wanted = {_HEADS + folder for folder in folders(bus.patterns)}
    try:
        child = exact_refs.start_listing(bus.git, bus.url, "--heads")
        try:
            listed = git_output.each_ref(git_output.each_line(child.chunks()))
            return [name.removeprefix(_HEADS) for name, _ in listed if name in wanted]
        finally:
            child.close()
    except ProcessError as error:
        raise InfrastructureError(f"cannot list the bus: {error.words()}", code="unreachable") from error


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
