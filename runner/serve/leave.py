"""Leaves what this runner cannot run to other runners of the bus that may be able to."""

from __future__ import annotations

from bridge.bus.history import View
from bridge.bus.wire import WAITS_FOR_APPROVAL, State
from bridge.manifest import Request
from runner.context import RunnerContext
from runner.serve.lease import Lease


def leave(
    context: RunnerContext, view: View, request: Request, reason: str = "", definition: str | None = None
) -> bool:
    """Leave a request to others, and return whether any may run it.

    If the others may think that this runner runs the preset, it notes on the branch that it does not, and why.
    ``definition`` is that of ``Others.who_may``.
    """
    names = context.others.who_may(view, request, context.presets.get(request.preset), definition)
    if not names:
        return False
    context.waits[view.branch] = f"left to {', '.join(names)}, because this runner cannot run it"
    is_listed = context.announcer is not None and context.announcer.lists(request.preset)
    is_held = view.state is not None and view.state.detail.startswith(WAITS_FOR_APPROVAL)
    if is_listed and not is_held and not context.others.has_left(view):
        lease = Lease(context, view)
        # It is no attempt to run the request.
        lease.token = view.token
        lease.advance(State.REQUESTED, detail=context.others.note(view, reason, context.identity.id))
    return True


def hand_on(context: RunnerContext, lease: Lease, request: Request, reason: str) -> bool:
    """Hand a request that this runner has claimed on to others, and return whether any may run it."""
    names = context.others.who_may(lease.view, request, context.presets.get(request.preset))
    if names:
        lease.advance(State.REQUESTED, detail=context.others.note(lease.view, reason, context.identity.id))
        context.tell(f"{lease.branch}: handed on to {', '.join(names)}, because this runner cannot run it")
        context.ledger.settled(branch=lease.branch, state="handed_on")
    return bool(names)
