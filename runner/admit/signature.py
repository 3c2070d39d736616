"""The SSH signature on a request commit, and its signer according to this host's own list.

This module takes the signature out of the commit and passes it to ``ssh-keygen``. It does not use ``git
verify-commit``, because git chooses the checking program by what the signature claims to be, and reads settings that
say whom to trust. Results are not cached.
"""

import base64
import binascii
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bridge.bus import objects
from bridge.common import environment
from bridge.errors import PolicyError, ProcessError
from bridge.system.git import Git
from bridge.system.process import Completed, run
from runner.ownership import check_owned

NAMESPACE = "git"

MAX_COMMIT = 1024 * 1024
_TIMEOUT_S = 30
_ARMOR = re.compile(
    rb"-----BEGIN SSH SIGNATURE-----\n(?:[A-Za-z0-9+/=]{1,76}\n)+-----END SSH SIGNATURE-----\n?"
)
_ROLES = (b"author ", b"committer ")
_MAGIC = b"SSHSIG"
_CERTIFICATE = b"-cert-v01@openssh.com"
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]{0,199}")
# Every key in SSH's format begins with the length of its type, so in base64 it begins with the letters AAAA.
_KEY = re.compile(r"\sAAAA[A-Za-z0-9+/]*=*(?!\S)")
_NAMESPACES = re.compile(r'namespaces="([^"]*)"', re.IGNORECASE)


class BadSignature(Exception):  # noqa: N818 - a result of the check, not a fault
    """The commit is not signed, or its signer is not on the list. The message names the reason."""


@dataclass(frozen=True)
class Signed:
    """A commit split into the signed bytes, the signature and the commit message."""

    payload: bytes
    signature: bytes
    message: str
    # Whether author and committer are the same. A copy, such as by cherry-pick, keeps the author of the original.
    is_original: bool


def read_signed(git: Git, commit: str) -> Signed | None:
    """Split a commit; None if it has no signature.

    Raises:
        BadSignature: the commit is too large, has several signatures, or has one that is no SSH signature.
    """
    (raw,) = objects.read_many(git, [commit], max_bytes=MAX_COMMIT, kind="commit")
    if raw is None:
        raise BadSignature(f"the commit is larger than {MAX_COMMIT} bytes")
    return split_signed_commit(raw, commit)


def split_signed_commit(raw: bytes, commit: str) -> Signed | None:
    """Split a commit whose content is ``raw``, like ``read_signed``."""
    header, _, message = raw.partition(b"\n\n")
    # A line that begins with a space continues the header before it.
    fields = [field for field in re.findall(rb"[^\n]*(?:\n [^\n]*)*", header) if field]
    signatures = [field for field in fields if field.startswith(b"gpgsig")]
    if not signatures:
        return None
    name = b"gpgsig " if len(commit) == 40 else b"gpgsig-sha256 "  # noqa: PLR2004 - hexadecimal digits of SHA-1
    if len(signatures) > 1 or not signatures[0].startswith(name):
        raise BadSignature("the commit has more than one signature, or one for another format of objects")
    armor = signatures[0].removeprefix(name).replace(b"\n ", b"\n") + b"\n"
    if not _ARMOR.fullmatch(armor.rstrip(b"\n") + b"\n"):
        raise BadSignature("the signature is not an SSH signature")
    payload = b"\n".join(field for field in fields if field is not signatures[0])
    people = [[field[len(role) :] for field in fields if field.startswith(role)] for role in _ROLES]
    is_original = len(people[0]) == 1 and people[0] == people[1]
    return Signed(payload + b"\n\n" + message, armor, message.decode("utf-8", "replace"), is_original)


def signer_of(signed: Signed, allowed_signers: Path) -> str:
    """Return the signer, by the host's current list.

    The list must name the signer literally; patterns are ignored.

    Raises:
        BadSignature: nobody on the list made the signature.
        PolicyError: others may write to the list.
    """
    check_list(allowed_signers)
    if not signed.is_original:
        reason = "its author and its committer differ, as in a copy: the signer need not have asked for it"
        raise BadSignature(reason)
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        file = Path(folder) / "signature"
        file.write_bytes(signed.signature)
        _check_certificate(signed.signature, Path(folder) / "certificate.pub")
        names = _principals(allowed_signers, file)
        if not names:
            raise BadSignature("it is signed with a key that is not on this host's list of signers")
        for name in names:
            argv = ("-Y", "verify", "-f", str(allowed_signers), "-I", name, "-n", NAMESPACE, "-s", str(file))
            if _ssh_keygen(*argv, stdin=signed.payload).returncode == 0:
                return name
    purpose = "was made for another purpose, or its key is not valid now"
    raise BadSignature(f"the signature does not fit the commit, {purpose}")


def _principals(signers: Path, signature: Path) -> list[str]:
    """Return whom a list names literally for the key of a signature."""
    answer = _ssh_keygen("-Y", "find-principals", "-f", str(signers), "-s", str(signature))
    names = answer.text.splitlines() if answer.returncode == 0 else []
    return [name for name in names if _PRINCIPAL.fullmatch(name)]


def _check_certificate(armor: bytes, file: Path) -> None:
    """Refuse a certificate with critical options: ``ssh-keygen`` ignores them, and no commit can satisfy one."""
    try:
        blob = base64.b64decode(b"".join(armor.strip().split(b"\n")[1:-1]), validate=True)
        key = _string(blob, len(_MAGIC) + 4)
        kind = _string(key, 0)
    except (binascii.Error, struct.error) as error:
        raise BadSignature("the signature is damaged") from error
    if not kind.endswith(_CERTIFICATE):
        return
    file.write_bytes(kind + b" " + base64.b64encode(key) + b"\n")
    shown = _ssh_keygen("-L", "-f", str(file))
    lines = (line.strip() for line in shown.text.split("\n"))
    options = [line for line in lines if line.startswith("Critical Options:")]
    if shown.returncode != 0 or options != ["Critical Options: (none)"]:
        reason = "its key is a certificate with conditions (critical options) that no commit can meet"
        raise BadSignature(reason)


def _string(data: bytes, at: int) -> bytes:
    """Return the string at an offset, in SSH's format. Raises struct.error if there is none."""
    (length,) = struct.unpack_from(">I", data, at)
    return data[at + 4 : at + 4 + length]


def check_list(path: Path) -> None:
    """Raise PolicyError if the list of signers is missing or others could change it."""
    try:
        path.stat()
    except OSError as error:
        raise PolicyError(f"cannot read the list of signers {path}: {error.strerror}") from error
    check_owned(path, "the list of signers")


def has_usable_signer(path: Path) -> bool:
    """Return whether a signature by any key on the list could count now.

    ``ssh-keygen`` skips lines that it cannot read, so it also decides here which lines count.

    Raises:
        PolicyError: the list cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise PolicyError(f"cannot read the list of signers {path}: {error.strerror}") from error
    return any(_lists_somebody(line) for line in lines if not line.lstrip().startswith("#"))


def _lists_somebody(line: str) -> bool:
    match = _NAMESPACES.search(line)
    if match and not any(fnmatchcase(NAMESPACE, pattern) for pattern in match[1].split(",")):
        return False
    if "cert-authority" in line.lower():
        # A certificate authority signs other people's keys, which nobody knows beforehand.
        return _KEY.search(line) is not None
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        alone, file = Path(folder) / "list", Path(folder) / "signature"
        alone.write_text(f"{line}\n", encoding="utf-8")
        for armor in _empty_signatures(line):
            file.write_bytes(armor)
            if _principals(alone, file):
                return True
    return False


def _empty_signatures(line: str) -> Iterator[bytes]:
    """Yield, for each key on a line, a signature that names the key but proves nothing."""
    for key in _KEY.findall(line):
        with suppress(binascii.Error):
            fields = (base64.b64decode(key.strip(), validate=True), NAMESPACE.encode(), b"", b"sha512", b"")
            whole = _MAGIC + struct.pack(">I", 1) + b"".join(struct.pack(">I", len(f)) + f for f in fields)
            text = base64.encodebytes(whole)
            yield b"-----BEGIN SSH SIGNATURE-----\n" + text + b"-----END SSH SIGNATURE-----\n"


def _ssh_keygen(*args: str, stdin: bytes = b"") -> Completed:
    argv = ("ssh-keygen", *args)
    try:
        return run(*argv, env=environment.for_isolated_git(), stdin=stdin, timeout=_TIMEOUT_S, check=False)
    except ProcessError as error:
        fix = "Install OpenSSH's client: signatures of requests are checked by ssh-keygen."
        raise ProcessError(argv, None, message=error.message, fix=fix) from error
