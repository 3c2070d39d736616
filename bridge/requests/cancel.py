"""Cancels a request: pushes a commit on top of the request branch, whatever the runner wrote meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Pushed, Remote
from bridge.bus.wire import CancelFile
from bridge.errors import InfrastructureError
from bridge.manifest import format_time
from bridge.requests import request_commit
from bridge.system.git import Git

_ATTEMPTS = 20


def cancel(git: Git, remote: Remote, look: Callable[[], RequestBranch], reason: str) -> RequestBranch:
    """Cancel a request unless it has ended or is already cancelled, and return its view. ``look`` fetches its branch.

    Raises:
        InfrastructureError: the branch moves faster than it can be pushed to.
    """
    for _ in range(_ATTEMPTS):
        view = look()
        if view.current_state.is_final or view.cancel:
            return view
        branch, who = view.branch, request_commit.identity(git)
        note = CancelFile(
            schema_version=2,
            branch=branch,
            request=view.request,
            by=who.email[:200],
            at=format_time(datetime.now(UTC)),
            reason=reason[:500],
        )
        tree = objects.overlay(git, f"{view.tip}^{{tree}}", {wire.CANCEL: note.to_bytes()})
        commit = objects.commit(git, tree, [view.tip], f"Cancel {branch}\n\n[skip ci]\n", who)
        if remote.push(branch, commit, expect=view.tip) is Pushed.DONE:
            return history.read_view(git, branch, commit)
    raise InfrastructureError(f"{view.branch} changed faster than it could be cancelled", fix="Try again.")
