"""A runner's signature on the commit of a state, valid for one branch and one place in its history.

The signature is the last line of the commit message, outside the tree, so readers that do not know it can still read
the state. It covers the branch, the parent and the tree, which contains the state.

Presence records are signed in the same way, for one reference and one content. The signed text begins with other
words, so neither signature can be used in place of the other.
"""

import base64
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.system import git_output
from bridge.verify.public_keys import PublicKey

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

_LINE = re.compile(rb"Kakeya-Signature: ([0-9a-f]{64}) ([A-Za-z0-9+/]{86}==)")
_TREE = re.compile(rb"tree ([0-9a-f]{40}|[0-9a-f]{64})\n")


def signed_message(message: str, signer: "Signer | None", *, branch: str, parent: str, tree: str) -> str:
    """Return the message with a signature as its last line. An existing signature is replaced."""
    return _with_signature(message, signer, _state(branch, parent, tree))


def signed_presence(message: str, signer: "Signer | None", *, ref: str, tree: str) -> str:
    """Return the message of a presence record's commit with a signature as its last line."""
    return _with_signature(message, signer, _presence(ref, tree))


def is_signed(commit: bytes, branch: str, keys: Sequence[PublicKey]) -> bool:
    """Return whether one of the keys signed a commit, given by its content, for this branch."""
    tree, parents = _TREE.match(commit), git_output.parents(commit)
    if tree is None or len(parents) != 1:
        return False
    return _holds(commit, _state(branch, parents[0], tree[1].decode()), keys)


def is_signed_presence(commit: bytes, ref: str, keys: Sequence[PublicKey]) -> bool:
    """Return whether one of the keys signed the commit of a presence record for this reference."""
    tree = _TREE.match(commit)
    return tree is not None and _holds(commit, _presence(ref, tree[1].decode()), keys)


def _with_signature(message: str, signer: "Signer | None", statement: bytes) -> str:
    lines = message.rstrip("\n").split("\n")
    unsigned = [line for line in lines if not _LINE.fullmatch(line.encode("utf-8", "replace"))]
    body = "\n".join(unsigned).rstrip("\n") + "\n"
    if signer is None:
        return body
    signature = signer.sign(statement)
    text = base64.b64encode(bytes.fromhex(signature.signature)).decode()
    return f"{body}\nKakeya-Signature: {signature.keyid} {text}\n"


def _holds(commit: bytes, statement: bytes, keys: Sequence[PublicKey]) -> bool:
    """Return whether the signature in a commit's last line was made by one of the keys on this text."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only who signs or verifies pays for it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    match = _LINE.fullmatch(commit.rstrip(b"\n").rpartition(b"\n")[2])
    key = next((key for key in keys if match and key.id == match[1].decode()), None)
    if match is None or key is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(base64.b64decode(match[2]), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _presence(ref: str, tree: str) -> bytes:
    return git_output.encode(f"kakeya presence 1\nref {ref}\ntree {tree}\n")


def _state(branch: str, parent: str, tree: str) -> bytes:
    return git_output.encode(f"kakeya state 1\nbranch {branch}\nparent {parent}\ntree {tree}\n")
