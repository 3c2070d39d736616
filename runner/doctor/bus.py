"""Checks what the bus's host allows, by really pushing a scratch branch and deleting it."""

import secrets
from collections.abc import Iterator

from bridge.bus import exact_refs, objects
from bridge.bus.hosts import causes
from bridge.bus.hosts.advice import Surroundings
from bridge.bus.hosts.push_end import PushEnd, PushError
from bridge.checklist import Check
from bridge.errors import ProcessError
from bridge.system.git import Git
from runner.bus.bus import Bus
from runner.state.identity import WHO

_TIMEOUT_S = 60.0
_RULES = "docs/operations.md lists what the host of a bus must allow."


def advice(git: Git, error: BaseException, branch: str = "") -> str | None:
    """Return the advice about a failure of git on the bus, if its cause is known."""
    failed: BaseException | None = error
    while failed and not isinstance(failed, ProcessError):
        failed = failed.__cause__
    if not isinstance(failed, ProcessError):
        return None
    if failed.fix:
        return failed.fix
    cause = causes.find(failed, is_push=bool(branch))
    return cause.help(Surroundings(git, "the bus", branch, is_runner=True)) if cause else None


def push_and_delete(bus: Bus) -> Iterator[Check]:
    """Push a commit like a runner's to a scratch branch that no runner takes for a request, and delete it again."""
    repo, url = bus.git, bus.url
    branch = f"{bus.request_patterns[0].removesuffix('*')}check-{secrets.token_hex(6)}"
    ref = exact_refs.HEADS + branch
    commit = objects.commit(repo, repo.text("mktree", stdin=""), [], "Check the bus\n\n[skip ci]\n", WHO)
    try:
        exact_refs.push(repo, url, {ref: commit}, {ref: None}, timeout=_TIMEOUT_S)
    except PushError as error:
        fix = advice(repo, error, branch) or _RULES
        yield Check("push", ok=False, message=f"{branch} cannot be pushed: {error.summary()}", fix=fix)
        if error.end(ref) is not PushEnd.UNKNOWN:
            return
    else:
        yield Check("push", ok=True, message=f"a scratch branch was pushed, {branch}")
    try:
        exact_refs.delete(repo, url, {ref: commit})
    except PushError as error:
        if error.end(ref) is not PushEnd.ACCEPTED:
            fix = advice(repo, error, branch) or _RULES
            yield Check(
                "deletion", ok=None, message=f"{branch} cannot be deleted: {error.summary()}", fix=fix
            )
            return
    yield Check("deletion", ok=True, message="the scratch branch was deleted")
