"""Reads a runner's public key from PEM text, and finds the keys that a maintainer pinned. A key's id is its SHA-256.

Only Ed25519 is supported. Such a key has exactly one encoding, so no library is needed to read it. A pin comes from an
option, from this clone's settings, or from a file on the default branch, never from an answer.
"""

import base64
import binascii
import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus import objects
from bridge.bus.folder.bus_folder import FOLDER, read_bus_folder
from bridge.common import environment
from bridge.common.advice import KEY, Advice
from bridge.errors import KakeyaError, UsageError
from bridge.system.git import Git

# SubjectPublicKeyInfo of RFC 8410: a sequence with the algorithm 1.3.101.112, then the 32 bytes of the key.
_DER_HEAD = bytes.fromhex("302a300506032b6570032100")
_RAW_BYTES = 32
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)
_MAX_FILE = 64 * 1024

_FILE = "runner.pub"
PINNED_FILE = f"{FOLDER}/{_FILE}"
VARIABLE = "KAKEYA_PUBLIC_KEY"
SETTING = "kakeya.publicKey"
# The setting of one remote, which comes before the one for all.
_OF_REMOTE = "kakeyaPublicKey"
HOW_TO_PIN = Advice(
    "Pin the runner's key: ", KEY, f", {VARIABLE}, git config {SETTING}, or {PINNED_FILE} on the main branch."
)
ANOTHER_KEY = (
    "If the runner's key was replaced, pin all its public keys in one file, old ones below the new one: "
    "`kakeya-runner keygen --show` on its machine prints them. If not, somebody else gave this answer."
)


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
    for label, body in _BLOCK.findall(text[:_MAX_FILE]):
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


@dataclass(frozen=True)
class Pin:
    """The trusted keys (a signature by any of them is enough), and the source that names them."""

    keys: tuple[PublicKey, ...]
    source: str

    @property
    def shown(self) -> str:
        """The keys' short ids, for people."""
        return ", ".join(key.short for key in self.keys)


# What a client of a bus of its own names if nobody signs there.
UNPINNED = Pin((), "")


def find_pin(git: Git | None, remote: str, named: Path | str | Pin | None = None) -> Pin | None:
    """Return the pinned keys: from ``named``, the environment, git's configuration, or the remote's main branch.

    Only the first source that names a key counts. The remote is asked for its default branch, for a few seconds at
    most; if it does not answer, what this clone saw last counts. Relative paths in git's configuration start at the top
    of the working tree. Outside a repository (``git`` is None), only the first two sources exist.

    Raises:
        UsageError: a named key cannot be read, because a broken pin must not count as no pin.
    """
    if named is not None:
        return _of_name(named)
    variable = environment.get(VARIABLE)
    if variable and "-----BEGIN" in variable:
        return Pin(read_public_keys(variable, VARIABLE), VARIABLE)
    if variable:
        return _of_file(Path(variable), VARIABLE)
    if git is None:
        return None
    for name in (f"remote.{remote}.{_OF_REMOTE}", SETTING):
        if setting := git.maybe("config", "--type=path", "--get", name):
            return _of_file(git.base() / setting, f"git config {name}")
    return _of_default_branch(git, remote)


def _of_name(named: Path | str | Pin) -> Pin | None:
    if isinstance(named, Pin):
        return named if named.keys else None
    return _of_file(Path(named), f"--key {named}")


def _of_file(path: Path, source: str) -> Pin:
    try:
        with environment.expand(path).open("rb") as file:
            text = file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        message = f"cannot read the key {path} ({source}): {error.strerror}"
        raise UsageError(message, code="bad_key") from error
    return Pin(read_public_keys(text, str(path)), source)


def _of_default_branch(git: Git, remote: str) -> Pin | None:
    folder = read_bus_folder(git, remote)
    source = folder.source(_FILE)
    if reason := folder.unread.get(_FILE):
        raise UsageError(f"cannot read {source}: {reason}", code="bad_key")
    content = folder.files.get(_FILE)
    if content is None:
        return None
    return Pin(read_public_keys(content.decode("utf-8", "replace"), source), source)


@dataclass(frozen=True)
class ReportKeys:
    """Finds the keys that may vouch for a report's run file: the pinned ones, and those published beside the report.

    A key beside a report counts only if the default branch of ``remote`` has it there, because whoever sends a report
    can also send a key. It counts for the reports in its folder and for nothing else.
    """

    pin: Pin | None
    git: Git | None = None
    remote: str = ""
    _by_folder: dict[Path, Pin | None] = field(default_factory=dict)

    @classmethod
    def find(cls, git: Git | None, remote: str, named: str | None = None) -> "ReportKeys":
        """Find the pinned keys. If an option or the environment names a key, only that one counts.

        Raises:
            UsageError: a named key cannot be read.
        """
        is_named = named is not None or environment.get(VARIABLE)
        return cls(find_pin(git, remote, named), None if is_named else git, remote)

    def pin_for(self, report: Path) -> Pin | None:
        """Return the keys that may vouch for the run file beside a report."""
        if self.git is None:
            return self.pin
        folder = report.absolute().parent.resolve()
        if folder not in self._by_folder:
            self._by_folder[folder] = _published(self.git, self.remote, folder)
        published = self._by_folder[folder]
        if published is None or self.pin is None:
            return published or self.pin
        return Pin((*published.keys, *self.pin.keys), f"{published.source} and {self.pin.source}")


def _published(git: Git, remote: str, folder: Path) -> Pin | None:
    """Return the keys that the default branch has in a folder of this working tree; None without a readable key."""
    top = git.top()
    if not top or not folder.is_relative_to(root := Path(top).resolve()):
        return None
    default = read_bus_folder(git, remote)
    if not default.branch:
        return None
    is_here = objects.is_commit(git, default.commit)
    commit = default.commit if is_here else objects.resolve(git, f"refs/remotes/{default.branch}")
    path = (folder.relative_to(root) / _FILE).as_posix()
    with suppress(KakeyaError):
        content = objects.read_blob(git, commit, path, max_bytes=_MAX_FILE) if commit else None
        if content is not None:
            source = f"{path} on {default.branch}"
            return Pin(read_public_keys(content.decode("utf-8", "replace"), source), source)
    return None
