"""Reads a runner's public key from PEM text. The key's id is its SHA-256.

Only Ed25519 is supported. Such a key has exactly one encoding, so no library is needed to read it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from bridge.errors import UsageError

# SubjectPublicKeyInfo of RFC 8410: a sequence with the algorithm 1.3.101.112, then the 32 bytes of the key.
_DER_HEAD = bytes.fromhex("302a300506032b6570032100")
_RAW_BYTES = 32
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)
_MAX_TEXT = 64 * 1024


@dataclass(frozen=True)
class PublicKey:
    """One Ed25519 public key."""

    raw: bytes

    @property
    def der(self) -> bytes:
        """The key as SubjectPublicKeyInfo."""
        return _DER_HEAD + self.raw

    @property
    def id(self) -> str:
        """The key's id, as printed by ``openssl pkey -pubin -outform DER | sha256sum``."""
        return hashlib.sha256(self.der).hexdigest()

    @property
    def short(self) -> str:
        """The beginning of the id, for people."""
        return f"sha256:{self.id[:16]}"

    @property
    def text(self) -> str:
        """The content of a public key file."""
        body = base64.b64encode(self.der).decode()
        return f"Key id: sha256:{self.id}\n-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"


def read_public_keys(text: str, where: str) -> tuple[PublicKey, ...]:
    """Read one or more keys from PEM blocks. Text around the blocks is ignored.

    Raises:
        UsageError: the text, which ``where`` names, has no key, or anything that is not an Ed25519 public key.
    """
    keys = []
    for label, body in _BLOCK.findall(text[:_MAX_TEXT]):
        if label != "PUBLIC KEY":
            fix = "Pin the file that ends in .pub." if "PRIVATE" in label else None
            raise UsageError(f"{where} holds a {label.lower()}, not a public key", fix=fix, code="bad_key")
        try:
            der = base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error as error:
            raise UsageError(f"{where} is not valid PEM", code="bad_key") from error
        if not der.startswith(_DER_HEAD) or len(der) != len(_DER_HEAD) + _RAW_BYTES:
            raise UsageError(f"{where} holds a key that is not Ed25519", code="bad_key")
        keys.append(PublicKey(der[len(_DER_HEAD) :]))
    if not keys:
        fix = "A public key file is what `kakeya-runner keygen` prints."
        raise UsageError(f"{where} holds no public key", fix=fix, code="bad_key")
    return tuple(keys)
