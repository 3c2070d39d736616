"""Carrier commits: empty commits on a session's own branch whose messages hold a request or a cancellation.

The message has a request's commit as git stores it, and its manifest. With the commits below the carrier, these are
enough to make the very same request commit again, with its id and its signature. So a runner forwards what was made and
adds nothing of its own, and two runners that forward it make the same commit.
"""

import base64
import binascii
import json
from dataclasses import dataclass

from bridge.bus import branch_names, objects, wire
from bridge.bus.wire import Branch, CancelFile, WireFile
from bridge.errors import KakeyaError
from bridge.system import git_output
from bridge.system.git import Git

# A manifest of the largest size, and a commit with its message, in JSON.
MAX_BYTES = 192 * 1024
_REQUEST, _CANCEL = b"Kakeya-Request: ", b"Kakeya-Cancel: "


class _RequestLine(WireFile):
    session: Branch
    branch: Branch
    manifest: str
    commit: str


class _CancelLine(WireFile):
    session: Branch
    cancel: CancelFile


@dataclass(frozen=True)
class CarriedRequest:
    """A request on the branch ``session``: the request branch, its manifest, and its commit as git stores it."""

    session: str
    branch: str
    manifest: bytes
    commit: bytes


@dataclass(frozen=True)
class CarriedCancel:
    """A cancellation on the branch ``session``."""

    session: str
    cancel: CancelFile


def request_message(carried: CarriedRequest, preset: str) -> str:
    """Return the message of the commit that carries a request."""
    line = _RequestLine(
        session=carried.session,
        branch=carried.branch,
        manifest=carried.manifest.decode(),
        commit=base64.b64encode(carried.commit).decode(),
    )
    return _message(f"Request {preset}", _REQUEST, line)


def cancel_message(carried: CarriedCancel) -> str:
    """Return the message of the commit that carries a cancellation."""
    line = _CancelLine(session=carried.session, cancel=carried.cancel)
    return _message(f"Cancel {carried.cancel.branch}", _CANCEL, line)


def _message(subject: str, key: bytes, line: WireFile) -> str:
    # Write one line of ASCII, so that no host or tool changes the text.
    text = json.dumps(line.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    # GitHub starts no workflow for a push whose head commit contains this.
    return f"{subject}\n\n[skip ci]\n\n{key.decode()}{text}\n"


def read_carrier(raw: bytes) -> CarriedRequest | CarriedCancel | None:
    """Read the request that a commit (its raw content) carries; None if it carries no readable request."""
    line = git_output.last_paragraph(raw).removesuffix(b"\n")
    if line.startswith(_REQUEST):
        request = wire.parse(_RequestLine, line.removeprefix(_REQUEST), MAX_BYTES)
        try:
            commit = base64.b64decode(request.commit, validate=True) if request else b""
        except (binascii.Error, ValueError):
            return None
        if request is None or not branch_names.parse_branch(request.branch):
            return None
        return CarriedRequest(request.session, request.branch, request.manifest.encode(), commit)
    if line.startswith(_CANCEL):
        cancel = wire.parse(_CancelLine, line.removeprefix(_CANCEL), MAX_BYTES)
        return CarriedCancel(cancel.session, cancel.cancel) if cancel else None
    return None


def message_of(git: Git, commit: str) -> str:
    """Return the message of a carrier commit."""
    raw = objects.read_commit(git, commit) or b""
    return git_output.decode(raw.partition(b"\n\n")[2])


def commit_id(git: Git, carried: CarriedRequest) -> str | None:
    """Return the id of a carried request's commit, which is not stored; None if it is no commit."""
    try:
        return git("hash-object", "-t", "commit", "--stdin", stdin=carried.commit).text
    except KakeyaError:
        return None


def restore_commit(git: Git, carried: CarriedRequest) -> str | None:
    """Store a carried request's commit and return its id; None if the commit does not match manifest and workload.

    The workload must be here. Whether it is on the carrier's branch is for the caller to check.
    """
    parents = git_output.parents(carried.commit)
    if not parents or not all(objects.is_commit(git, parent) for parent in parents):
        return None
    try:
        tree = objects.overlay(
            git, f"{parents[0]}^{{tree}}", {wire.FOLDER: None, wire.REQUEST: carried.manifest}
        )
        if not carried.commit.startswith(f"tree {tree}\n".encode()):
            return None
        return git("hash-object", "-t", "commit", "-w", "--stdin", stdin=carried.commit).text
    except KakeyaError:
        return None
