"""Taking requests from the bus: one by its name (`once`), or all that come (`serve`)."""

from __future__ import annotations

import random

from bridge.bus import branch_names
from bridge.bus.wire import State
from bridge.errors import InfrastructureError, RefusedError
from runner.bus.backoff import Patience
from runner.serve.dispatch import flush, handle
from runner.serve.next_action import TipWatch, decide
from runner.serve.poll import Rounds
from runner.session import Session
from runner.upkeep.chores import Chores

_GROWTH = 1.5
_LONGEST_TROUBLE_S = 60.0


def serve(session: Session, *, limit: int | None = None) -> int:
    """Poll the bus and handle what comes until the session is to stop or `limit` requests were handled.

    Requesters take turns. Returns how many were handled. The bus being out of reach is waited out.
    """
    shortest, longest = session.policy.bus.poll
    rounds, chores = Rounds(session), Chores(session)
    pause, handled = shortest, 0
    box = session.sandbox
    session.standing.serves(serving=True, sandbox={"kind": box.kind, "why": box.why})
    while not session.stop.is_set():
        session.pulse.beat()
        try:
            worked = rounds.next()
            chores.maybe()
        except (InfrastructureError, OSError) as error:
            if session.stop.is_set():
                break
            session.tell(f"{error}; trying again")
            session.standing.failed(str(error))
            pause = min(max(pause, 1.0) * 2, _LONGEST_TROUBLE_S)
            session.stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads polls, guards nothing
            continue
        handled += worked
        if limit is not None and handled >= limit:
            break
        pause = shortest if worked else min(pause * _GROWTH, longest)
        if not worked:
            session.stop.wait(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads polls, guards nothing
    session.standing.serves(serving=False)
    return handled


def once(session: Session, branch: str, commit: str | None = None) -> State | None:
    """Handle one branch and return the state of its answer, None where this runner did not give one.

    With `commit`, only that commit is taken as the request: a branch that has moved on is left alone.
    Raises RefusedError where the branch is not one that this runner serves or does not exist.
    """
    if not branch_names.is_safe(branch) or not branch_names.matches(branch, session.bus.patterns):
        patterns = ", ".join(session.bus.patterns)
        raise RefusedError(
            f"{branch!r} is not served here: the policy accepts {patterns}", code="branch_not_served"
        )
    waiting = flush(session, Patience())
    tip = session.bus.tip(branch)
    if tip is None:
        raise RefusedError(f"there is no branch {branch} on the bus", code="no_such_request")
    view = session.reader.view(session.bus.git, branch, tip)
    if view.too_large:
        raise RefusedError(f"{branch} cannot be read: {view.too_large}", code="too_large")
    if commit is not None and view.request != commit:
        raise RefusedError(
            f"{branch} is no longer at {commit[:12]}: its request is {view.request[:12]}", code="moved"
        )
    if view.stands.is_final:
        return view.stands
    if branch in waiting:
        raise InfrastructureError(f"the answer of {branch} cannot be pushed", fix="Try again.")
    return handle(session, view, decide(session, view, TipWatch()))
