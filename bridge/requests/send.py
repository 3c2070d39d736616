"""Sends a request (only once per idempotency key) or cancels it: both push a commit to its branch."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from bridge.bus import history
from bridge.bus.branch_names import Namespace
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.bus.wire import CancelFile
from bridge.common.advice import TRY_AGAIN, Advice, step
from bridge.errors import InfrastructureError, KakeyaError
from bridge.manifest import format_time
from bridge.requests import idempotency, request_commit
from bridge.requests.binding import Binding, repository_name
from bridge.requests.on_branch import carry
from bridge.requests.on_branch.carrier import CarriedCancel
from bridge.requests.on_branch.carry import Courier
from bridge.requests.outbox import Sent
from bridge.requests.request_commit import Draft, Prepared
from bridge.system.git import Git

_ATTEMPTS = 20
# How long a cancellation is tried. After each refused push it waits until the newer commit can be read.
_CANCEL_S = 120.0


class Delivery(NamedTuple):
    """A request that was sent."""

    branch: str
    commit: str
    # Whether an earlier call with the same key had sent the request.
    existing: bool = False
    # The session's branch that carries the request, for a runner to forward; None if the request has its own
    # branch.
    session: str | None = None


def send(
    git: Git,
    remote: Remote,
    sent: Sent,
    draft: Draft,
    *,
    namespace: Namespace,
    patterns: tuple[str, ...],
    sign: bool,
    idempotency_key: str | None,
    on_branch: str | None = None,
    place: str = "",
    is_new: bool = False,
) -> Delivery:
    """Push a request branch, and record it in ``sent``. Raises the errors of ``Client.run``.

    With ``on_branch``, the request goes onto that branch of the session (empty: the one that is checked out). It also
    does if the remote refuses new branches, now or in an earlier call. ``place`` is the request's place in its group,
    and ``is_new`` says that no earlier call had the idempotency key.
    """

    def bind(branch: str) -> Binding:
        # Git resolves a relative address from the top of the working tree.
        top = git.base()
        return Binding(branch, repository_name(remote.url, top), draft.preset.digest)

    make = partial(request_commit.prepare, git, draft, namespace, bind=bind if sign else None)
    session = (
        carry.remembered_session(git, remote)
        if on_branch is None
        else carry.Session(carry.session_branch(git, remote, on_branch))
    )
    courier = Courier(git, remote, session)
    try:
        if idempotency_key is not None:
            who = draft.requested_by or request_commit.identity(git).email
            content = {
                "preset": draft.preset.name,
                "params": draft.params,
                "ref": draft.ref,
                "snapshot": draft.snapshot,
                "labels": [*draft.labels],
                **({"against": draft.against} if draft.against is not None else {}),
            }
            key = idempotency.Key.of(idempotency_key, who, content, idempotency.read_secret(git), place)
            sender = idempotency.IdempotentSender(git, remote, sent, patterns, courier.push, is_new)
            return Delivery(
                *sender.send(key, lambda nonce: make(nonce=nonce, prove=key.proof)), courier.session_name
            )
        return _send_new(courier, sent, make())
    except InfrastructureError as error:
        error.sends_again = error.code == "unsure" and idempotency_key is None
        if error.code == "unsure" and idempotency_key is not None:
            error.fix = "Call it again with the same key: the request is sent only once."
        raise


def _send_new(courier: Courier, sent: Sent, prepared: Prepared) -> Delivery:
    """Push a request. Record it first, so that this clone knows the request even if the reply to the push is lost."""
    branch, commit = prepared.branch, prepared.commit
    sent.add(branch, commit)
    try:
        if not courier.push(branch, commit):
            raise InfrastructureError(f"{branch} exists on the remote already", fix=Advice(TRY_AGAIN, "."))
    except KakeyaError as error:
        if error.code == "unsure":
            error.fix = step("Look before you send it again, or it may run twice", "status", branch)
        else:
            sent.forget(branch)
        raise
    except KeyboardInterrupt as error:
        error.add_note(f"{branch} may have been sent")
        error.add_note(f"next: kakeya status {branch}, or kakeya cancel {branch}")
        raise
    return Delivery(branch, commit, session=courier.session_name)


def cancel(git: Git, remote: Remote, look: Callable[[], RequestBranch], reason: str) -> RequestBranch:
    """Cancel a request unless it has ended or is already cancelled, and return its branch. ``look`` fetches it.

    Raises:
        InfrastructureError: the branch moves faster than it can be pushed to.
    """
    ends = time.monotonic() + _CANCEL_S
    for i in range(_ATTEMPTS):
        branch = look()
        if branch.current_state.is_final or branch.cancel:
            return branch
        name, who = branch.name, request_commit.identity(git)
        by, at = who.email[:200], format_time(datetime.now(UTC))
        note = CancelFile(
            schema_version=2, branch=name, request=branch.request, by=by, at=at, reason=reason[:500]
        )
        if carried := carry.Carriers(git).request(name):
            carry.cancel_on_branch(git, remote, CarriedCancel(carried.session, note))
            return replace(branch, cancel=note)
        commit = history.commit_cancel(git, branch, note, who)
        if remote.push(name, commit, expect=branch.tip):
            return history.read_branch(git, name, commit)
        if i and time.monotonic() > ends:
            break
    raise InfrastructureError(
        f"{branch.name} changed faster than it could be cancelled", fix=Advice(TRY_AGAIN, ".")
    )
