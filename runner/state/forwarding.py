"""Forwards requests from sessions' own branches: creates the request branch that a carrier commit names.

A session's branch is only read. What is forwarded is the requester's own commit, unchanged, so all rules of admission
apply to it as if the requester had pushed it.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.bus import branch_names, history, objects
from bridge.bus.wire import CancelFile
from bridge.common import limits
from bridge.common.whole_files import atomic_write
from bridge.errors import InfrastructureError, KakeyaError
from bridge.manifest import MAX_LIFETIME
from bridge.requests.on_branch import carrier
from bridge.requests.on_branch.carrier import CarriedCancel, CarriedRequest
from bridge.system import git_output
from runner.bus.bus import Bus, Pushed
from runner.state.identity import WHO

_SKEW_S = 3600.0
# How many commits are in memory at once.
_AT_ONCE = 16


@dataclass
class _Forwarded:
    """A request on a session's branch: the branch, the request's commit (empty if invalid), and a cancellation."""

    session: str
    request: str
    cancel: CancelFile | None = None


class Forwarder:
    """Looks at the sessions' branches, and remembers what it forwarded until the nonce is too old to be used again."""

    def __init__(self, bus: Bus, state_folder: Path, tell: Callable[[str], None]) -> None:
        self._bus = bus
        self._file = state_folder / "forwarded.json"
        self._tell = tell
        self._tips: Mapping[str, str] = {}
        # By session and not in a record of a request: a session's branch is no request, and what was forwarded is
        # remembered after its branch is gone. First the tip up to which each session's branch was read.
        self._read: dict[str, str] = {}
        self._known = self._load()

    def is_idle(self, sessions: Mapping[str, str]) -> bool:
        """Return whether no session was ever seen, as on a bus that forwards nothing."""
        return not (sessions or self._known or self._read)

    def see(self, sessions: Mapping[str, str], requests: Mapping[str, str]) -> bool:
        """Forward what is new on the sessions' branches. Returns whether a request branch was created or moved.

        ``requests`` are the tips of the request branches.
        """
        created: dict[str, str] = {}
        if sessions is not self._tips:
            new, cancels = self._read_new(sessions, requests)
            created = self._forward(new)
            if len(new) < limits.FORWARDED_A_POLL and all(name in self._known for name in new):
                self._read, self._tips = dict(sessions), sessions
            for cancel in cancels:
                self._note_cancel(cancel)
            self._save()
        return self._push_cancels({**requests, **created}) or bool(created)

    def _read_new(
        self, sessions: Mapping[str, str], requests: Mapping[str, str]
    ) -> tuple[dict[str, _Forwarded], list[CarriedCancel]]:
        """Return the requests to forward, by branch, and all new cancellations."""
        new: dict[str, _Forwarded] = {}
        cancels: list[CarriedCancel] = []
        # Use another order each time, so that no session is always first.
        for session in random.sample(sorted(sessions), len(sessions)):
            tip = sessions[session]
            for each in self._carried(session, tip):
                if isinstance(each, CarriedCancel):
                    cancels.append(each)
                    continue
                is_known = each.branch in self._known or each.branch in new
                is_full = len(new) >= limits.FORWARDED_A_POLL or len(self._known) >= limits.FORWARDED
                if is_known or is_full or not self._may_forward(each):
                    continue
                request = self._restore(each, tip, requests.get(each.branch))
                if request is None:
                    # The session that it belongs to may still come.
                    continue
                # Another runner may have created its branch already, and may have moved it since.
                target = self._known if each.branch in requests else new
                target[each.branch] = _Forwarded(session, request)
        return new, cancels

    def cancellation(self, branch: str, request: str) -> CancelFile | None:
        """Fetch the session's branch of a forwarded request, and return the cancellation on it, if any."""
        known = self._known.get(branch)
        if known is None or known.request != request:
            return None
        with suppress(InfrastructureError):
            tip = self._bus.tip(known.session)
            if tip:
                for each in self._carried(known.session, tip):
                    if isinstance(each, CarriedCancel):
                        self._note_cancel(each)
        return known.cancel

    def _carried(self, session: str, tip: str) -> Iterator[CarriedRequest | CarriedCancel]:
        """Yield what the new commits of a session's branch carry, oldest first."""
        git = self._bus.git
        before = self._read.get(session)
        if before == tip:
            return
        span = [tip, f"^{before}"] if before and objects.is_commit(git, before) else [tip]
        walk = ("rev-list", "--first-parent", "--reverse", f"--max-count={limits.SESSION_COMMITS}", *span)
        commits = git_output.lines(git(*walk, ok=(0, 128)).stdout)
        for start in range(0, len(commits), _AT_ONCE):
            some = commits[start : start + _AT_ONCE]
            for raw in objects.read_many(git, some, max_bytes=carrier.MAX_BYTES, kind="commit"):
                each = carrier.read_carrier(raw) if raw else None
                # A branch that was made from another session's branch also holds the requests of that
                # session.
                if each is not None and each.session == session:
                    yield each

    def _may_forward(self, carried: CarriedRequest) -> bool:
        """Return whether a request may be forwarded by its name: no other branch than a request's is ever created."""
        parsed = branch_names.parse_branch(carried.branch)
        if parsed is None or not branch_names.matches(carried.branch, self._bus.request_patterns):
            return False
        return _is_recent(carried.branch)

    def _restore(self, carried: CarriedRequest, tip: str, forwarded: str | None) -> str | None:
        """Return the id of the request's commit; None if it is not made upon commits of the session's branch.

        If its branch exists, with the tip ``forwarded``, the very commit of the request counts too: the session's
        branch may have been rewritten since.
        """
        git = self._bus.git
        if all(history.is_ancestor(git, parent, tip) for parent in git_output.parents(carried.commit)):
            commit = carrier.restore_commit(git, carried)
            if commit:
                return commit
        if forwarded:
            commit = carrier.commit_id(git, carried)
            with suppress(KakeyaError):
                if commit == history.read_branch(git, carried.branch, forwarded).request:
                    return commit
        self._tell(f"{carried.session}: the request {carried.branch} is not made of commits of that branch")
        return None

    def _forward(self, new: Mapping[str, _Forwarded]) -> dict[str, str]:
        """Create request branches, and return those that this runner created."""
        created = {}
        for name, pushed in self._bus.create({name: each.request for name, each in new.items()}).items():
            if pushed is Pushed.FAILED:
                continue
            # STALE means that another runner was quicker, or that somebody else has used the name.
            self._known[name] = new[name]
            if pushed is Pushed.DONE:
                created[name] = new[name].request
                self._tell(f"{name} is forwarded from {new[name].session}")
        return created

    def _note_cancel(self, carried: CarriedCancel) -> None:
        known = self._known.get(carried.cancel.branch)
        if known and known.session == carried.session and known.request == carried.cancel.request:
            known.cancel = known.cancel or carried.cancel

    def _push_cancels(self, requests: Mapping[str, str]) -> bool:
        """Put cancellations onto the request branches, as the requester would have."""
        moved = False
        for name, known in self._known.items():
            if known.cancel is None or name not in requests:
                continue
            branch = history.read_branch(self._bus.git, name, requests[name])
            if branch.current_state.is_final or branch.cancel or branch.request != known.request:
                known.cancel = None
                continue
            commit = history.commit_cancel(self._bus.git, branch, known.cancel, WHO)
            moved |= self._bus.push(name, commit, expect=branch.tip) is Pushed.DONE
        return moved

    def _load(self) -> dict[str, _Forwarded]:
        try:
            entries = json.loads(self._file.read_text(encoding="utf-8"))
            return {name: _Forwarded(*pair) for name, pair in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _save(self) -> None:
        """Keep what was forwarded, until its nonces are too old to be forwarded again."""
        recent = {name: known for name, known in self._known.items() if _is_recent(name)}
        self._known = recent
        text = json.dumps({name: [known.session, known.request] for name, known in recent.items()})
        if not self._file.exists() or self._file.read_text(encoding="utf-8") != text:
            with atomic_write(self._file) as draft:
                draft.write_text(text, encoding="utf-8")


def _is_recent(branch: str) -> bool:
    parsed = branch_names.parse_branch(branch)
    age_s = time.time() - branch_names.nonce_time(parsed.nonce) if parsed else float("inf")
    return -_SKEW_S <= age_s <= MAX_LIFETIME.total_seconds()
