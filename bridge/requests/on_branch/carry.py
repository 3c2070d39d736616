"""Puts requests and cancellations onto a session's own branch, for a runner to forward.

The branch that is checked out moves to the new commit if git's own next push needs that. The commit has the same files
as the one before, so working tree and index stay as they are.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.bus import branch_names, exact_refs, history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.common import strict_json
from bridge.common.advice import SNAPSHOT, TRY_AGAIN, Advice, joined
from bridge.errors import InfrastructureError, KakeyaError, RefusedError, UsageError
from bridge.requests import request_commit
from bridge.requests.on_branch import carrier
from bridge.requests.on_branch.carrier import CarriedCancel, CarriedRequest
from bridge.requests.waiting import Code, Reason
from bridge.system import git_output
from bridge.system.git import Git

# The commit that carries each request, and whether its request branch has not been seen yet.
_CARRIERS = "refs/kakeya-carriers/"
_UNFORWARDED = "refs/kakeya-unforwarded/"
# The commit that carries the cancellation of a request that no runner had forwarded.
_CANCELS = "refs/kakeya-carried-cancels/"
_TRIES = 20
_PUSH_FIRST = "If you may push to one branch only, push your commits to it: then the request goes on it."


@dataclass(frozen=True)
class Carriers:
    """The records of requests that were sent on a session's branch."""

    git: Git

    def add(self, branch: str, commit: str) -> None:
        """Record the commit that carries the request of a branch."""
        self.git("update-ref", _CARRIERS + branch, commit)
        self.git("update-ref", _UNFORWARDED + branch, commit)

    def request(self, branch: str) -> CarriedRequest | None:
        """Return the request of a branch as it was sent; None if it was pushed to its own branch directly."""
        raw = objects.read_commit(self.git, self.commit_of(branch))
        carried = carrier.read_carrier(raw or b"")
        return carried if isinstance(carried, CarriedRequest) else None

    def unforwarded(self) -> list[str]:
        """Return the request branches that no runner was seen to have created yet."""
        return [ref.removeprefix(_UNFORWARDED) for ref in self.git.refs(_UNFORWARDED)]

    def add_cancel(self, branch: str, commit: str) -> None:
        """Record the commit that carries the cancellation of a branch's request."""
        self.git("update-ref", _CANCELS + branch, commit)

    def with_cancel(self, branch: RequestBranch) -> RequestBranch:
        """Return the request of a branch that does not exist yet, with the cancellation that was sent after it."""
        raw = objects.read_commit(self.git, objects.resolve(self.git, _CANCELS + branch.name))
        carried = carrier.read_carrier(raw or b"")
        return replace(branch, cancel=carried.cancel) if isinstance(carried, CarriedCancel) else branch

    def commit_of(self, branch: str) -> str | None:
        """Return the commit that carries the request of a branch."""
        return objects.resolve(self.git, _CARRIERS + branch)

    def is_unforwarded(self, branch: str) -> bool:
        """Return whether no runner was seen to have created the request branch yet."""
        return objects.resolve(self.git, _UNFORWARDED + branch) is not None

    def mark_forwarded(self, branch: str) -> None:
        """Record that the request branch exists."""
        self.git.delete_refs([_UNFORWARDED + branch, _CANCELS + branch])

    def forget(self, branch: str) -> None:
        """Remove a record."""
        self.git.delete_refs([_CARRIERS + branch, _UNFORWARDED + branch, _CANCELS + branch])


def session_branch(git: Git, remote: Remote, name: str | None) -> str:
    """Return the branch that may carry requests: ``name``, or the one that is checked out.

    Raises:
        UsageError: there is none, or it is the remote's default branch.
    """
    branch = name or request_commit.current_branch(git)
    if branch is None:
        raise UsageError("no branch is checked out", fix="Check out the branch of your session.")
    head = exact_refs.find_head(git, remote.name)
    if head and head[0] == branch:
        fix = "Check out the branch of your session."
        raise UsageError(
            f"{branch} is the default branch of {remote.name}, which carries no requests", fix=fix
        )
    return branch


class Session(NamedTuple):
    """A branch that may carry requests, and its commit on the remote if that was just read."""

    branch: str
    there: str | None = None


def usable_session(git: Git, remote: Remote) -> Session | None:
    """Return the checked-out branch if it may carry requests although the user did not name it.

    It must be on the remote with all its commits: what its owner has not pushed is never pushed with a request unasked.
    """
    try:
        branch = session_branch(git, remote, None)
        there = remote.fetch(branch).get(branch)
        here = objects.resolve(git, f"refs/heads/{branch}")
    except KakeyaError:
        return None
    return Session(branch, there) if there and here and history.is_ancestor(git, here, there) else None


def remember(git: Git, remote: Remote) -> None:
    """Record in this clone that the remote takes no new branches."""
    if remote.name in git_output.lines(git("remote").stdout):
        git("config", _setting(remote), "true", ok=range(256))


def remembered_session(git: Git, remote: Remote) -> Session | None:
    """Return the branch to send on if the remote is known to take no new branches."""
    known = git.maybe("config", "--type=bool", _setting(remote)) == "true"
    return usable_session(git, remote) if known else None


def _setting(remote: Remote) -> str:
    return f"remote.{remote.name}.kakeyaOnBranch"


@dataclass
class Courier:
    """Pushes requests: each to a branch of its own, or all onto ``session``, if the remote allows only that."""

    git: Git
    remote: Remote
    session: Session | None

    @property
    def session_name(self) -> str | None:
        """The name of the session's branch, if requests go on it."""
        return self.session.branch if self.session else None

    def push(self, branch: str, commit: str) -> bool:
        """Push a request commit. Returns False if its branch exists already. Raises the errors of ``Client.run``."""
        if self.session is not None:
            send_on_branch(self.git, self.remote, self.session, branch, commit)
            return True
        try:
            return self.remote.push(branch, commit, expect=None)
        except RefusedError as refusal:
            if refusal.code == "squatted":
                raise
            session = usable_session(self.git, self.remote)
            if session is None:
                refusal.fix = joined([refusal.fix or "", _PUSH_FIRST])
                raise
            try:
                send_on_branch(self.git, self.remote, session, branch, commit)
            except KakeyaError:
                raise refusal from None
        remember(self.git, self.remote)
        self.session = session
        return True


def send_on_branch(git: Git, remote: Remote, session: Session, branch: str, commit: str) -> None:
    """Push the request commit of a branch upon the session's branch. Raises the errors of ``Client.run``."""
    raw = objects.read_commit(git, commit)
    manifest = objects.read_blob(git, commit, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    carried = CarriedRequest(session.branch, branch, manifest or b"", raw or b"")
    parsed = branch_names.parse_branch(branch)
    message = carrier.request_message(carried, parsed.preset if parsed else branch)
    Carriers(git).add(branch, _push_upon(git, remote, session, message, objects.parents_of(git, commit)))


def cancel_on_branch(git: Git, remote: Remote, carried: CarriedCancel) -> None:
    """Push a cancellation upon the session's branch. Raises the errors of ``Client.cancel``."""
    carriers, branch = Carriers(git), carried.cancel.branch
    again = carriers.commit_of(branch)
    commit = _push_upon(git, remote, Session(carried.session), carrier.cancel_message(carried), (), again)
    carriers.add_cancel(branch, commit)


def _push_upon(
    git: Git, remote: Remote, known: Session, message: str, needed: Collection[str], again: str | None = None
) -> str:
    """Push an empty commit upon a branch, which must hold the commits that are needed, and return its id.

    ``again`` is the commit that carries a request. If the branch was rewritten without it, the request is carried
    again below; if the branch is gone, it begins there.
    """
    who, session = request_commit.identity(git), known.branch
    for i in range(_TRIES):
        there = known.there if known.there and not i else remote.fetch(session).get(session)
        here = objects.resolve(git, f"refs/heads/{session}")
        base = again if again and not (here or there) else _base(git, remote, session, here, there)
        for commit in needed:
            if not history.is_ancestor(git, commit, base):
                fix = Advice(
                    "Commit your work on your branch, and leave out ", SNAPSHOT, " and other commits."
                )
                raise UsageError(
                    f"the commit {commit[:12]} is not on {session}, which carries the request", fix=fix
                )
        lost = (
            [] if again is None or history.is_ancestor(git, again, base) else [carrier.message_of(git, again)]
        )
        commit, tree = base, git.text("rev-parse", f"{base}^{{tree}}")
        for text in (*lost, message):
            commit = objects.commit(git, tree, [commit], text, who)
        if remote.push(session, commit, expect=there, is_own=True):
            if base == here:
                git("update-ref", "-m", "kakeya: request", f"refs/heads/{session}", commit, here, ok=(0, 128))
            return commit
    raise InfrastructureError(
        f"{session} changed faster than it could be pushed to", fix=Advice(TRY_AGAIN, ".")
    )


def _base(git: Git, remote: Remote, session: str, here: str | None, there: str | None) -> str:
    """Return the newer of a branch's two commits, here and on the remote."""
    if here is None and there is None:
        raise UsageError(
            f"there is no branch {session} here or on {remote.name}", fix="Name one that exists."
        )
    if here is None or there is None:
        return str(here or there)
    if history.is_ancestor(git, there, here):
        return here
    if history.is_ancestor(git, here, there):
        return there
    fix = f"Run: git pull --rebase {remote.name} {session}"
    raise UsageError(f"{session} here and on {remote.name} have diverged", fix=fix)


def not_forwarded(session: str) -> Reason:
    """Return why a request waits on a session's branch."""
    pattern = f"{session.rpartition('/')[0] or session}/*"
    fix = f"A runner takes it from there if its policy lists the branch under bus.forward, such as {pattern}."
    return Reason(Code.FORWARD, f"no runner has forwarded it from {session} yet", fix)
