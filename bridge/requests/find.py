"""Finds the request that a user means by a branch, a nonce or a part of either."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.bus import branch_names
from bridge.bus.history import View
from bridge.bus.remote import Remote
from bridge.errors import InfrastructureError, UsageError
from bridge.requests.outbox import Sent


def find_branch(name: str | None, sent: Sent, listed: Callable[[], Iterable[str]]) -> str:
    """Return the branch that ``name`` matches; without a name, the last one sent from here.

    ``listed`` returns the branches on the remote. It is called only if nothing that was sent from here matches.

    Raises:
        UsageError: none or several match.
    """
    if name is not None and branch_names.parse_branch(name):
        return name
    own = sent.branches()
    if name is None:
        if not own:
            raise UsageError(
                "no request was sent from this repository", fix="Send one: kakeya run noop --wait"
            )
        return own[-1]
    fitting = [branch for branch in own if name in branch]
    fitting = fitting or [branch for branch in listed() if name in branch]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(sorted(fitting)[:3])
        raise UsageError(f"{len(fitting)} requests fit {name!r}: {some} ...", fix="Give more of the name.")
    raise UsageError(f"no request fits {name!r}", fix="`kakeya list` shows the requests on the remote.")


def no_such_request(branch: str, remote: Remote) -> UsageError:
    """Return the error for a branch that is not on the remote."""
    fix = "It may have been collected after its end, or never sent. `kakeya list` shows what is there."
    if remote.pushes_to != remote.url:
        places = f"{remote.name} is read from {remote.url}, but git pushes to {remote.pushes_to}"
        fix = f"{places}: both must be the same repository."
    return UsageError(f"there is no request {branch} on {remote.name}", fix=fix, code="no_such_request")


def answered(view: View) -> View:
    """Return the view of a request that has its answer.

    Raises:
        InfrastructureError: it has none yet.
    """
    if view.stands.is_final:
        return view
    message = f"{view.branch} has no answer yet: it is {view.stands}"
    raise InfrastructureError(message, fix=f"Wait for it: kakeya wait {view.branch}", code="no_answer_yet")
