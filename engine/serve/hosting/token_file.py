"""The file through which a host program and its server share a token."""

import errno
import fcntl
import logging
import os
import secrets
import stat
from pathlib import Path

from bridge.common.whole_files import create_private
from engine.errors import BadInput

log = logging.getLogger("engine.serve")

OPTION = "--token-file"
_MOST = 4096  # bytes of a file
_BYTES = 32  # random bytes of a new token
_TRIES = 10  # the file may be removed or emptied while it is read
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_or_create(path: Path) -> str:
    """Return the token in a file. If the file is absent or empty, a new token is written first.

    Servers that start at the same time with the same file get the same token. Afterwards only this user may read the
    file. A symbolic link, and a file of another user, are refused: somebody else would choose who learns the token.

    Raises:
        BadInput: the file cannot be used.
    """
    try:
        for _ in range(_TRIES):
            if token := _read(path):
                return token
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        message = f"{OPTION} {path} cannot be used: {reason}"
        raise BadInput(message, "name a file in a folder that this user may write to") from error
    raise BadInput(f"{OPTION} {path} cannot be used: other programs keep emptying it", "name another file")


def _read(path: Path) -> str:
    """Return the token; "" if the file was empty and has to be read again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        create_private(path, secrets.token_urlsafe(_BYTES))
        return ""
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if about.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "it belongs to another user")
        content = file.read(_MOST + 1)
        if content.strip() and about.st_mode & 0o077:
            log.warning("%s was readable for others; it is not any more", path)
            os.fchmod(descriptor, 0o600)
    if len(content) > _MOST:
        raise OSError(errno.EFBIG, "it is too large for a token")
    token = content.decode("ascii", "replace").strip()
    if not token:
        _fill(path)
    return token


def _fill(path: Path) -> None:
    """Replace an empty file, unless another process does. The old file stays empty: others may have opened it."""
    with os.fdopen(os.open(path, os.O_RDWR | _FLAGS), "rb") as empty:
        fcntl.flock(empty, fcntl.LOCK_EX)
        about = os.fstat(empty.fileno())
        if about.st_size <= _MOST and os.path.samestat(about, path.lstat()) and not empty.read().strip():
            create_private(path, secrets.token_urlsafe(_BYTES), replace=True)
