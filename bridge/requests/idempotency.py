"""Idempotent requests: a call with the same key finds the run of the first call, even if the first call was killed.

The record is the request branch itself. Its nonce contains a digest of the requester and the key, and a digest of the
request's content, so any clone can find the request on the remote. In this clone, a private reference also keeps the
request's commit from before the push. So after a crash, the next call pushes the same commit to the same branch, and
the remote accepts it only once.

Not covered: two clones use one key in different minutes, and neither sees the other's branch yet.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bridge.bus import branch_names, history, objects, wire
from bridge.bus.remote import Pushed, Remote
from bridge.common import strict_json
from bridge.errors import InfrastructureError, KakeyaError, UsageError
from bridge.manifest import Request, parse_manifest
from bridge.requests.outbox import KEYS, Sent, by_age
from bridge.requests.request_commit import Prepared
from bridge.system.git import Git

MAX_KEY = 200

# Requests with one key within one minute have the same name, so that the remote accepts only one of them.
_WINDOW_S = 60
_HALF = 16
_MANIFEST_BYTES = 64 * 1024


@dataclass(frozen=True)
class Key:
    """A caller's key with the digests for the nonce."""

    text: str
    requester: str
    # Hexadecimal digests of the requester with the key, and of the request's content.
    digest: str
    asked: str

    @classmethod
    def of(cls, text: str, requester: str, asked: Mapping[str, object]) -> Key:
        """Return the key for a request.

        Raises:
            UsageError: the text is not a valid key.
        """
        if not (0 < len(text) <= MAX_KEY and text.isprintable()):
            fix = "Use a short name of the task, such as eval-2026-01-31."
            raise UsageError(f"an idempotency key is 1 to {MAX_KEY} printable characters", fix=fix)
        return cls(text, requester, _digest([requester, text]), _digest(asked))

    def nonce(self) -> str:
        """Return the nonce for a request that is made now."""
        return f"{int(time.time()) // _WINDOW_S * _WINDOW_S}-{self.digest}{self.asked}"

    def check(self, branch: str) -> None:
        """Raise UsageError if the request on a branch with this key has other content."""
        parsed = branch_names.parse_branch(branch)
        if parsed and parsed.nonce.endswith(self.asked):
            return
        message = f"the idempotency key {self.text!r} was used for another request: {branch}"
        fix = "Use a new key, or repeat the first call with the same preset, parameters and ref."
        raise UsageError(message, fix=fix, code="idempotency_conflict")


@dataclass(frozen=True)
class Once:
    """Sends requests at most once, from one repository to one remote."""

    git: Git
    remote: Remote
    sent: Sent
    patterns: tuple[str, ...]

    def ask(self, key: Key, prepare: Callable[[str], Prepared]) -> tuple[str, str, bool]:
        """Send the request that ``prepare`` makes for a nonce, unless an earlier call with the key sent it.

        Returns the branch, the request's commit, and whether an earlier call made it.

        Raises:
            UsageError: with code ``idempotency_conflict`` if the key was used for other content.
        """
        noted = self.sent.keyed(key.digest)
        existing = noted is not None
        if noted is None:
            found = self._on_remote(key)
            if found:
                key.check(found[0])
                self.sent.add(*found)
                return (*found, True)
            prepared = prepare(key.nonce())
            # Another process may have recorded its request meanwhile; then that one counts.
            self.git(
                "update-ref", KEYS + key.digest, prepared.commit, "0" * len(prepared.commit), ok=(0, 128)
            )
            noted = self.sent.keyed(key.digest)
            if noted is None:
                raise InfrastructureError(
                    "the request could not be noted in this repository", fix="Try again."
                )
        branch, commit = noted
        key.check(branch)
        known = self.sent.commit_of(branch)
        if known:
            return branch, known, True
        if self.remote.push(branch, commit, expect=None) is Pushed.STALE:
            there = self._ours(key, [branch])
            if not there:
                fix = "Use another idempotency key."
                raise InfrastructureError(f"{branch} exists on the remote, and is not yours", fix=fix)
            # Pushed by a call that died before it could record the push, or by another clone in the same minute.
            existing, (_, commit) = True, there[0]
        self.sent.add(branch, commit)
        return branch, commit, existing

    def _on_remote(self, key: Key) -> tuple[str, str] | None:
        """Return the oldest request with a key, and its commit, if the remote has one."""
        listed = self.remote.listed(*self.patterns)
        parsed = {branch: branch_names.parse_branch(branch) for branch in listed}
        under = [b for b, p in parsed.items() if p and p.nonce.partition("-")[2].startswith(key.digest)]
        return next(iter(self._ours(key, sorted(under, key=by_age))), None)

    def _ours(self, key: Key, branches: Iterable[str]) -> list[tuple[str, str]]:
        """Return the branches with requests by this requester, each with the request's commit.

        The check is needed because anyone who may push can choose a matching name.
        """
        found = []
        for branch in branches:
            tip = self.remote.fetch(branch).get(branch)
            request = history.read_view(self.git, branch, tip).request if tip else ""
            manifest = self._manifest(request) if tip else None
            parsed = branch_names.parse_branch(branch)
            if (
                manifest
                and parsed
                and manifest.nonce == parsed.nonce
                and manifest.requested_by == key.requester
            ):
                found.append((branch, request))
        return found

    def _manifest(self, request: str) -> Request | None:
        try:
            raw = objects.read_blob(self.git, request, wire.REQUEST, max_bytes=_MANIFEST_BYTES)
            return parse_manifest(raw) if raw else None
        except KakeyaError:
            return None


def _digest(value: object) -> str:
    return hashlib.sha256(strict_json.dumps(value).encode()).hexdigest()[:_HALF]
