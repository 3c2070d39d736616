"""A runner's signature on the commit of a state: made with its key, for one branch and one place in its history.

It stands in the last line of the commit's message, outside the tree, so a reader that knows nothing of it reads the
state all the same. What is signed is the branch, the parent and the tree, and the tree holds the state: the signature
fits no other branch, no other history and no other content.
"""

from __future__ import annotations

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


def signed_message(message: str, signer: Signer | None, *, branch: str, parent: str, tree: str) -> str:
    """Return the message with a signature as its last line, in the place of one that is there already."""
    kept = "".join(f"{line}\n" for line in message.rstrip("\n").split("\n") if not _is_signature(line))
    kept = kept.rstrip("\n") + "\n"
    if signer is None:
        return kept
    signature = signer.sign(_what_is_signed(branch, parent, tree))
    text = base64.b64encode(bytes.fromhex(signature.signature)).decode()
    return f"{kept}\nKakeya-Signature: {signature.keyid} {text}\n"


def is_signed(commit: bytes, branch: str, keys: Sequence[PublicKey]) -> bool:
    """Say whether one of the keys signed a commit, given by its content, for this branch."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only who signs or verifies pays for it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    found = _LINE.fullmatch(commit.rstrip(b"\n").rpartition(b"\n")[2])
    tree, parents = _TREE.match(commit), git_output.parents(commit)
    key = next((key for key in keys if found and key.id == found[1].decode()), None)
    if found is None or tree is None or key is None or len(parents) != 1:
        return False
    said = _what_is_signed(branch, parents[0], tree[1].decode())
    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(base64.b64decode(found[2]), said)
    except (InvalidSignature, ValueError):
        return False
    return True


def _is_signature(line: str) -> bool:
    return _LINE.fullmatch(line.encode("utf-8", "replace")) is not None


def _what_is_signed(branch: str, parent: str, tree: str) -> bytes:
    return f"kakeya state 1\nbranch {branch}\nparent {parent}\ntree {tree}\n".encode(
        "utf-8", "surrogateescape"
    )
