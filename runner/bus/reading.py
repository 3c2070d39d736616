"""Reads many branches so that one unreadable branch does not stop the others from being read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.bus import history
from bridge.bus.history import RequestBranch
from bridge.system.git import Git
from bridge.verify.signed_history import Reader

Failed = Callable[[str, Exception], None]


def read_each(
    git: Git, tips: Mapping[str, str], failed: Failed, reader: Reader, commits: int | None = None
) -> dict[str, RequestBranch]:
    """Read many branches, given as ``{branch: commit id}``. After a failure, read halves; ``failed`` gets bad ones.

    ``commits`` bounds the search for signed states, as in ``Reader.views``. Whether a branch that has ended is foreign
    or cancelled is not looked at: nobody who reads many of them does anything about that.
    """
    if not tips:
        return {}
    try:
        # If only signed states count, signatures tell which of several states ended a branch.
        plain = None if reader.has_keys else history.read_views(git, tips, ended_whole=False)
        return reader.views(git, tips, plain, commits)
    except Exception as error:  # noqa: BLE001 - whatever a stranger pushed
        branches = list(tips)
        if len(branches) == 1:
            failed(branches[0], error)
            return {}
    middle = len(branches) // 2
    views: dict[str, RequestBranch] = {}
    for half in (branches[:middle], branches[middle:]):
        views |= read_each(git, {branch: tips[branch] for branch in half}, failed, reader, commits)
    return views
