"""By which steps requesters share a runner's turns, for those whose signature is not known.

Runners use this to order the queue; clients use it to compute how many jobs come before a request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod

from bridge.bus import branch_names

# ("signer", name), or (pattern, "here" or "below", folder, name): each step divides the turns of the step
# before it.
Requester = tuple[str, ...]


def prefixes(patterns: Iterable[str]) -> list[str]:
    """Return what branches under the patterns begin with, the longest first: one within another stands for itself."""
    return sorted((pattern.removesuffix("*") for pattern in patterns), key=len, reverse=True)


def unsigned(branch: str, name: str, known: Sequence[str]) -> Requester:
    """Return the requester of a branch by the name in its manifest; ``known`` is what ``prefixes`` returns."""
    parsed = branch_names.parse_branch(branch)
    prefix = parsed.prefix if parsed else ""
    pattern = next((one for one in known if branch.startswith(one)), "")
    folder = prefix.removeprefix(pattern)
    return (pattern, "below" if folder else "here", folder, name)


def shares(waiting: Iterable[Requester]) -> dict[Requester, int]:
    """Return for each requester among how many the turns are shared, step by step: its share is one of them.

    If all stand directly below one pattern, that is the number of requesters. Who waits has a turn after at most one
    job less than this on each runner, however many requests the others have.
    """
    everybody = set(waiting)
    beside: dict[Requester, set[str]] = defaultdict(set)
    for requester in everybody:
        for step in range(len(requester)):
            beside[requester[:step]].add(requester[step])
    return {
        requester: prod(len(beside[requester[:step]]) for step in range(len(requester)))
        for requester in everybody
    }
