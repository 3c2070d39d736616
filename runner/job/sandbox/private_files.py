"""The one list of files that a sandbox shows to no job, wherever they lie: passwords, keys and histories."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bridge.errors import InfrastructureError

# Files and folders. A folder of the second list counts only below a folder `.config`.
_NAMES = (
    ".aws", ".azure", ".docker", ".env", ".envrc", ".git", ".git-credentials", ".gnupg", ".hg", ".huggingface",
    ".kaggle", ".kube", ".netrc", ".npmrc", ".password-store", ".pgpass", ".pypirc", ".ssh", ".svn", ".vault-token",
    "_netrc", "pip.conf", "stored_tokens",
)  # fmt: skip
_CONFIGURED = ("gcloud", "gh", "git", "hub", "op")
_ANY_KIND = rf"{'|'.join(map(re.escape, _NAMES))}|\.env\.[^/]*"
# The pattern that seatbelt compares with whole paths, in POSIX notation.
PATTERN = rf"/(({_ANY_KIND})|\.config/({'|'.join(_CONFIGURED)}))(/|$)"
_PRIVATE = re.compile(_ANY_KIND, re.IGNORECASE)
# Files only: packages may have folders of these names.
_FILES = re.compile(r"token|id_[^.]*|.*\.(p12|pfx|jks|keystore|kdbx)", re.IGNORECASE)
# Private unless they contain only what is public, such as the certificates of authorities.
_KEYS = re.compile(r".*\.(pem|key|p8)", re.IGNORECASE)
_PUBLIC = re.compile(rb"-----BEGIN (X509 |TRUSTED )?(CERTIFICATE|PUBLIC KEY|DH PARAMETERS|X509 CRL)-----")
_KEY_BYTES = 4 << 20
# All names that `is_private` may answer for: a search looks at a hundred thousand others.
_SUSPECT = re.compile(
    "|".join((_PRIVATE.pattern, *_CONFIGURED, _FILES.pattern, _KEYS.pattern)), re.IGNORECASE
)
# Repositories of a Hugging Face cache.
REPOSITORY = re.compile(r"(models|datasets|spaces|kernels)--.+")
# Packages that an installer wrote. They come from indexes, and hold too many files to be searched for each command.
_INSTALLED = re.compile(r"(site|dist)-packages|python\d.*")
# A search of this many entries takes about a second.
MAX_ENTRIES = 1_000_000


def is_private(path: Path) -> bool:
    """Return whether no job may see a path, by its own name and, for keys, by its content."""
    if _PRIVATE.fullmatch(path.name):
        return not (path / "pyvenv.cfg").exists()  # some call a virtual environment .env
    if path.parent.name == ".config" and path.name in _CONFIGURED:
        return True
    if _FILES.fullmatch(path.name):
        return path.is_file()
    return _KEYS.fullmatch(path.name) is not None and path.is_file() and not _is_public(path)


def _is_public(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            text = file.read(_KEY_BYTES)
    except OSError:
        return False
    return b"PRIVATE KEY" not in text and _PUBLIC.search(text) is not None


def hidden_below(
    folders: Iterable[Path], *, named: Collection[Path] = (), installed: Collection[Path] = ()
) -> Iterator[Path]:
    """Yield the paths below shown folders that a job may not see now. Links are not followed.

    They are private files, sockets and named pipes (processes of the host may listen on them), and repositories of a
    Hugging Face cache that are not ``named``. In ``installed`` folders, packages are not searched.

    Raises:
        InfrastructureError: the folders have too many entries.
    """
    count = 0
    waiting = [
        (str(folder), folder in installed)
        for folder in dict.fromkeys(folders)
        if folder.is_dir() and not (folder in installed and _INSTALLED.fullmatch(folder.name))
    ]
    while waiting:
        folder, is_installed = waiting.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if (
                    _is_door(entry)
                    or (_SUSPECT.fullmatch(entry.name) and is_private(Path(entry.path)))
                    or (REPOSITORY.fullmatch(entry.name) and Path(entry.path) not in named)
                ):
                    path = Path(entry.path)
                    yield from _ends_of(path) if entry.is_symlink() else [path]
                elif entry.is_dir(follow_symlinks=False) and not (
                    is_installed and _INSTALLED.fullmatch(entry.name)
                ):
                    waiting.append((entry.path, is_installed))
        if count > MAX_ENTRIES:
            message = f"the folders that are shown to jobs hold more than {MAX_ENTRIES} entries"
            raise InfrastructureError(message, fix="Name a smaller folder under env in the policy.")


def _ends_of(link: Path) -> Iterator[Path]:
    """Yield a link's target after one step, and with all links resolved: no mount can cover the link itself.

    These differ if a folder on the way is a link itself, which is shown under both names.
    """
    step = Path(os.path.normpath(link.parent / link.readlink()))
    yield from (end for end in dict.fromkeys((step, link.resolve())) if not end.is_symlink())


def _is_door(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a socket, a named pipe or a device."""
    return not (
        entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False) or entry.is_symlink()
    )
