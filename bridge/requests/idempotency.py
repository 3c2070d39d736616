"""Idempotent requests: a call with the same key finds the run of the first call, even if the first call was killed.

The record is a private reference of this clone to the request's commit, written before the push. So after a crash, the
next call pushes the same commit to the same branch, and the remote accepts it only once.

Anyone who may push can choose branch names, requesters and keys. So the commit of an earlier call has a code made with
the clone's secret, over the key, the branch, the tree and the workload. The branch's name depends on the secret too, so
nobody can occupy it before the push.

One case is not covered: two clones with the same secret use a key in different minutes, and neither sees the other's
branch yet.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus import branch_names, history, objects
from bridge.bus.branch_names import age_sort_key
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.common import strict_json
from bridge.common.advice import TRY_AGAIN, Advice
from bridge.common.validation import weakness
from bridge.common.whole_files import create_private
from bridge.errors import InfrastructureError, UsageError
from bridge.requests.liveness import is_expired
from bridge.requests.outbox import Sent
from bridge.requests.request_commit import Content, Prepared
from bridge.system import git_output
from bridge.system.git import Git
from bridge.system.local_files import read_regular

MAX_KEY = 200
# The setting by which clones share a secret, and the file below the git folder with a clone's own secret.
SETTING = "kakeya.idempotencySecret"
FILE_NAME = "kakeya-secret"

_SECRET_BYTES = 32
_MAX_SECRET = 4096
# Requests with one key within one minute have the same name, so that the remote accepts only one of them.
_WINDOW_S = 60
_HALF = 16
# How many digits of both remain in the nonce of a point of a group.
_POINT_NAME, _POINT_CONTENT = 8, 6
# Names per key. A name is used up if somebody else overwrites its branch between the push and the end of the call.
_NAMES = 8
_PROOF = re.compile(rb"^Key: ([0-9a-f]{64})$", re.MULTILINE)


def read_secret(git: Git) -> bytes:
    """Return the secret of this clone, which is created at the first call.

    Clones of the same requester share a secret if git's setting ``kakeya.idempotencySecret`` names one.

    Raises:
        UsageError: others could guess the shared secret.
        InfrastructureError: it can be neither read nor made.
    """
    shared = git.maybe("config", "--get", SETTING)
    if shared is not None:
        if reason := weakness(shared):
            fix = f"Draw one, and give it to each clone: git config {SETTING} $(openssl rand -hex 32)"
            raise UsageError(f"git's setting {SETTING} {reason}", fix=fix)
        return shared.encode()
    file = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir")) / FILE_NAME
    try:
        if not file.exists():
            create_private(file, secrets.token_hex(_SECRET_BYTES))
        secret = read_regular(file, _MAX_SECRET)
    except OSError as error:
        raise InfrastructureError(f"cannot write {file}: {error.strerror}") from error
    if not secret or len(secret) < _SECRET_BYTES:
        raise InfrastructureError(f"{file} holds no secret", fix="Remove it: a new one is made.")
    return secret


@dataclass(frozen=True)
class Key:
    """A caller's key."""

    text: str
    # A digest of the request's content, and the name of the private reference.
    content: str
    note: str
    # How the nonces' digits begin, in the order of use.
    names: tuple[str, ...]
    _secret: bytes = field(repr=False)
    _requester: str = field(repr=False)

    @classmethod
    def of(
        cls, text: str, requester: str, content: Mapping[str, object], secret: bytes, place: str = ""
    ) -> "Key":
        """Return the key for a request. A text that cannot be a key is a UsageError.

        ``place`` are the digits of a point's place in its group, with which the nonces' digits begin.
        """
        if not (0 < len(text) <= MAX_KEY and text.isprintable()):
            fix = "Use a short name of the task, such as eval-2026-01-31."
            raise UsageError(f"an idempotency key is 1 to {MAX_KEY} printable characters", fix=fix)
        codes = (_code(secret, "name", requester, text, i) for i in range(_NAMES))
        names = tuple(place + code[: _POINT_NAME if place else _HALF] for code in codes)
        end = _code(secret, "content", content)[: _POINT_CONTENT if place else _HALF]
        return cls(text, end, _code(secret, "note", requester, text), names, secret, requester)

    def nonce(self, name: int) -> str:
        """Return a nonce with the current time and one of the key's names."""
        return f"{int(time.time()) // _WINDOW_S * _WINDOW_S}-{self.names[name]}{self.content}"

    def name_index(self, branch: str) -> int | None:
        """Return the index of the key's name that a branch has; None if it has none of them."""
        parsed = branch_names.parse_branch(branch)
        digits = parsed.nonce.partition("-")[2] if parsed else ""
        begins = digits[: len(self.names[0])]
        return self.names.index(begins) if begins in self.names else None

    def proof(self, content: Content) -> str:
        """Return the trailer by which this key's holder recognizes a request commit."""
        return f"Key: {_code(self._secret, 'proof', self._requester, self.text, *content)}\n"

    def proves(self, branch: str, raw: bytes) -> bool:
        """Return whether a request commit, given as git stores it, was made with this key for this branch."""
        parts = re.match(rb"tree ([0-9a-f]+)\nparent ([0-9a-f]+)\n(?!parent )", raw)
        codes = _PROOF.findall(git_output.last_paragraph(raw))
        if not parts or len(codes) != 1:
            return False
        content = Content(branch, parts[1].decode(), parts[2].decode())
        return hmac.compare_digest(self.proof(content).encode(), b"Key: " + codes[0] + b"\n")

    def check(self, branch: str) -> None:
        """Raise UsageError if the request on a branch with this key has other content."""
        parsed = branch_names.parse_branch(branch)
        if not parsed or not parsed.nonce.endswith(self.content):
            message = f"the idempotency key {self.text!r} was used for another request: {branch}"
            fix = "Use a new key, or repeat the first call with the same preset, parameters and ref."
            raise UsageError(message, fix=fix, code="idempotency_conflict")


@dataclass(frozen=True)
class IdempotentSender:
    """Sends requests at most once, from one repository to one remote."""

    git: Git
    remote: Remote
    sent: Sent
    patterns: tuple[str, ...]
    # Pushes a request commit to its branch, and returns False if the branch exists already.
    push: Callable[[str, str], bool]
    # Whether the key was drawn just now, so that no request with it can be on the remote.
    is_new: bool = False

    def send(self, key: Key, prepare: Callable[[str], Prepared]) -> tuple[str, str, bool]:
        """Send the request that ``prepare`` builds for a nonce, unless an earlier call with the key sent it.

        Returns the branch, the request's commit, and whether an earlier call created it.

        Raises:
            UsageError: with code ``idempotency_conflict`` if the key was used for other content.
        """
        noted = self._noted(key)
        if noted and not self.sent.commit_of(noted[0]):
            branch, commit = noted
            if is_expired(self.git, RequestBranch(branch, commit, commit), time.time()):
                # An earlier call failed to send this commit. If the commit arrived nevertheless, it is on the
                # remote.
                self.sent.drop_note(key.note, commit)
                noted = None
        existing = noted is not None
        if noted is None:
            listed = () if self.is_new else self.remote.list_branches(*self.patterns)
            named = [name for name in listed if key.name_index(name) is not None]
            if on_remote := self._made_here(key, sorted(named, key=age_sort_key)):
                key.check(on_remote[0])
                self.sent.add(*on_remote)
                return (*on_remote, True)
            noted = self._note(key, prepare(key.nonce(0)))
        while True:
            branch, commit = noted
            key.check(branch)
            if known := self.sent.commit_of(branch):
                return branch, known, True
            if self.push(branch, commit):
                self.sent.add(branch, commit)
                return branch, commit, existing
            if earlier := self._made_here(key, [branch]):
                # Another clone with the same secret pushed this request in the same minute.
                self.sent.add(*earlier)
                return (*earlier, True)
            # The branch with this name now belongs to somebody else.
            name = (key.name_index(branch) or 0) + 1
            if name == _NAMES:
                message = f"{branch} exists on the remote, and is not yours"
                raise InfrastructureError(message, fix="Use another idempotency key.")
            existing = False
            noted = self._note(key, prepare(key.nonce(name)), instead_of=commit)

    def _noted(self, key: Key) -> tuple[str, str] | None:
        """Return the branch and the commit that an earlier call recorded here.

        A mirror's references follow its remote, so a note proves no more than a branch does. A foreign one is removed.
        """
        noted = self.sent.keyed(key.note)
        if noted is None or self._proves(key, *noted):
            return noted
        self.sent.drop_note(key.note, noted[1])
        return None

    def _note(self, key: Key, prepared: Prepared, instead_of: str | None = None) -> tuple[str, str]:
        """Record a request before the push, and return the recorded request: another process may have been faster."""
        self.sent.note(key.note, prepared.commit, instead_of)
        noted = self._noted(key)
        if noted is None:
            raise InfrastructureError(
                "the request could not be noted in this repository", fix=Advice(TRY_AGAIN, ".")
            )
        return noted

    def _made_here(self, key: Key, branches: Iterable[str]) -> tuple[str, str] | None:
        """Return the first branch whose request commit was made with this key, and that commit."""
        for branch in branches:
            tip = self.remote.fetch(branch).get(branch)
            request = history.read_branch(self.git, branch, tip).request if tip else ""
            if self._proves(key, branch, request):
                return branch, request
        return None

    def _proves(self, key: Key, branch: str, commit: str) -> bool:
        raw = objects.read_commit(self.git, commit)
        return raw is not None and key.proves(branch, raw)


def _code(secret: bytes, *about: object) -> str:
    return hmac.new(secret, strict_json.dumps(about).encode(), hashlib.sha256).hexdigest()
