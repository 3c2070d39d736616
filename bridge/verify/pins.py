"""Finds the public keys that a reader trusts: keys pinned beforehand, never a key that came with an answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.bus import objects
from bridge.common import environment
from bridge.errors import UsageError
from bridge.system.git import Git
from bridge.verify.public_keys import PublicKey, read_public_keys

PINNED_FILE = ".kakeya/runner.pub"
VARIABLE = "KAKEYA_PUBLIC_KEY"
SETTING = "kakeya.publicKey"
HOW_TO_PIN = f"Pin the runner's key: --key FILE, {VARIABLE}, git config {SETTING}, or {PINNED_FILE} on the main branch."

_MAX_FILE = 64 * 1024


@dataclass(frozen=True)
class Pin:
    """The trusted keys (a signature by any of them is enough), and the source that names them."""

    keys: tuple[PublicKey, ...]
    source: str

    @property
    def shown(self) -> str:
        """The keys' short ids, for people."""
        return ", ".join(key.short for key in self.keys)


def find_pin(git: Git | None, remote: str, named: Path | str | None = None) -> Pin | None:
    """Return the pinned keys: from ``named``, the environment, git's configuration, or the remote's main branch.

    Only the first source that names a key counts. Nothing is fetched: the remote's default branch is read as of the
    last fetch. Outside a repository (``git`` is None), only the first two sources exist.

    Raises:
        UsageError: a named key cannot be read, because a broken pin must not count as no pin.
    """
    if named is not None:
        return _of_file(Path(named), f"--key {named}")
    variable = environment.get(VARIABLE)
    if variable and "-----BEGIN" in variable:
        return Pin(read_public_keys(variable, VARIABLE), VARIABLE)
    if variable:
        return _of_file(Path(variable), VARIABLE)
    if git is None:
        return None
    setting = git.maybe("config", "--type=path", "--get", SETTING)
    if setting:
        return _of_file(git.directory / setting, f"git config {SETTING}")
    return _of_default_branch(git, remote)


def _of_file(path: Path, source: str) -> Pin:
    try:
        with path.expanduser().open("rb") as file:
            text = file.read(_MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(
            f"cannot read the key {path} ({source}): {error.strerror}", code="bad_key"
        ) from error
    return Pin(read_public_keys(text, str(path)), source)


def _of_default_branch(git: Git, remote: str) -> Pin | None:
    head = git.maybe("symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD")
    commit = objects.resolve(git, head) if head else None
    if not head or not commit:
        return None
    blob = objects.read_blob(git, commit, PINNED_FILE, max_bytes=_MAX_FILE)
    if blob is None:
        return None
    source = f"{PINNED_FILE} on {head.removeprefix('refs/remotes/')}"
    return Pin(read_public_keys(blob.decode("utf-8", "replace"), source), source)
