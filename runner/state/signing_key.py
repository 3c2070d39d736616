"""The key that signs this runner's states and answers. Only its owner can read it.

``runner.pub`` lists the public half of every key that ever signed here, new ones above old ones, so that whoever pins
this file can verify old answers too.

Also the public keys of other runners, if the policy lists them: then only states signed with these count. A key that
cannot be used is a PolicyError.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.common.whole_files import atomic_write
from bridge.errors import PolicyError, UsageError
from bridge.system import local_files
from bridge.verify.public_keys import PublicKey, read_public_keys
from bridge.verify.signed_history import Reader
from runner.policy import Policy

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, Signer

PRIVATE = "runner.key"
PUBLIC = "runner.pub"
_MAX_FILE = 64 * 1024
UNSIGNED = (
    "answers are not signed, because this runner has no key: readers cannot tell who wrote them. "
    "Make one: kakeya-runner keygen, then restart the runner"
)
# This file exists once the operator was warned that answers are not signed.
_WARNED = "unsigned-warned"


def make_key(state_folder: Path, *, force: bool = False) -> PublicKey:
    """Create a key pair in the state folder and return the public key.

    With ``force`` the old pair is replaced. Its public half stays in ``runner.pub``, below the new one.

    Raises:
        UsageError: there is one already.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415

    state_folder.mkdir(parents=True, exist_ok=True)
    state_folder.chmod(0o700)
    private = Ed25519PrivateKey.generate()
    public = PublicKey(private.public_key().public_bytes_raw())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    target = state_folder / PRIVATE
    if target.exists() and not force:
        fix = "`kakeya-runner keygen --show` prints its public half; --force replaces it."
        raise UsageError(f"there is a key already: {target}", fix=fix, code="key_exists")
    # Write the old key's public half first: it must not be lost with its private half.
    with suppress(PolicyError):
        if signer := load_signer(state_folder):
            record_key(state_folder, public_half(signer))
    with atomic_write(target) as part:
        part.touch(0o600)
        part.write_bytes(pem)
    record_key(state_folder, public)
    return public


def make_missing_key(state_folder: Path) -> bool:
    """Create a key pair if the state folder has no key; return whether it had none. An existing file is left alone."""
    if os.path.lexists(state_folder / PRIVATE):
        return False
    make_key(state_folder)
    return True


def must_warn(state_folder: Path, *, signs: bool) -> bool:
    """Return whether to warn that answers are not signed: once, and again if a key was made and is gone."""
    mark = state_folder / _WARNED
    try:
        if signs:
            mark.unlink(missing_ok=True)
            return False
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return not signs
    return True


def record_key(state_folder: Path, key: PublicKey) -> tuple[PublicKey, ...]:
    """Put a key on top of ``runner.pub``, and return all keys in the file. An unreadable file is moved aside."""
    path = state_folder / PUBLIC
    earlier = _listed(path)
    if earlier is None and path.exists():
        path.replace(path.with_name(f"{PUBLIC}.damaged-{time.time_ns():x}"))
    keys = (key, *(known for known in earlier or () if known != key))
    if keys != earlier:
        local_files.replace(path, "".join(known.text for known in keys))
    return keys


def _listed(path: Path) -> tuple[PublicKey, ...] | None:
    """Return the keys in ``runner.pub``; None if it holds none."""
    try:
        return read_public_keys(
            (local_files.read_regular(path, _MAX_FILE) or b"").decode("utf-8", "replace"), str(path)
        )
    except UsageError:
        return None


def load_signer(state_folder: Path) -> "CryptoSigner | None":
    """Return the runner's signer, or None if it has no key."""
    path = state_folder / PRIVATE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PolicyError(f"cannot read the signing key {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        pem = file.read(16 * 1024)
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        fix = f"Make a new one: kakeya-runner keygen --force ({path})"
        raise PolicyError(f"others may read {path}", fix=fix)
    return _signer(pem, path)


def _signer(pem: bytes, path: Path) -> "CryptoSigner":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415
    from securesystemslib.signer import CryptoSigner, SSlibKey  # noqa: PLC0415

    try:
        private = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise PolicyError(f"{path} is not a private key") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise PolicyError(f"{path} is not an Ed25519 key")
    key = PublicKey(private.public_key().public_bytes_raw())
    return CryptoSigner(private, SSlibKey(key.id, "ed25519", "ed25519", {"public": key.raw.hex()}))


def public_half(signer: "Signer") -> PublicKey:
    """Return the public key of a signer."""
    return PublicKey(bytes.fromhex(signer.public_key.keyval["public"]))


def public_key(state_folder: Path) -> PublicKey:
    """Return the private key's public half, since its file may be missing or wrong; UsageError without a key."""
    signer = load_signer(state_folder)
    if signer is None:
        raise UsageError(f"there is no key in {state_folder}", fix="Make one: kakeya-runner keygen")
    return public_half(signer)


def public_keys(state_folder: Path) -> tuple[PublicKey, ...]:
    """Return all keys that may have signed, the current key first; UsageError without a current key."""
    current = public_key(state_folder)
    return (current, *(key for key in _listed(state_folder / PUBLIC) or () if key != current))


def reader(policy: Policy, signer: "Signer | None" = None) -> Reader:
    """Return the reader of branches. If the policy lists runners' keys, only states signed with these or ours count.

    Ours are all keys that ``signer`` (by default the one in the state folder) and its predecessors signed with.
    """
    if not policy.trust.runners:
        return Reader()
    signer = signer or load_signer(policy.state)
    if signer is None:
        message = "the policy lists runners' keys in trust.runners, and this runner has no key to sign its own states"
        raise PolicyError(message, fix="Make one: kakeya-runner keygen")
    own = public_half(signer)
    keys = [own, *(key for key in _listed(policy.state / PUBLIC) or () if key != own)]
    for path in policy.trust.runners:
        try:
            keys += read_public_keys(path.read_bytes()[:_MAX_FILE].decode("utf-8", "replace"), str(path))
        except OSError as error:
            raise PolicyError(f"cannot read the runners' key {path}: {error.strerror}") from error
        except UsageError as error:
            raise PolicyError(error.message, fix=error.fix) from error
    return Reader(keys)
