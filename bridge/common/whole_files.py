"""Writes a file or a folder of files completely or not at all."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a path to write to, with the same name in a temporary folder. At the end, that file replaces ``path``.

    If writing fails, nothing is left behind, and ``path`` is unchanged.

    Raises:
        OSError: it cannot be written, with an error number also if a library raised an error of its own.
    """
    folder = ""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            part = Path(folder) / path.name
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(path)
    except (OSError, RuntimeError) as error:
        number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
        name = error.filename if isinstance(error, OSError) else None
        if number and name is not None and not (folder and str(name).startswith(folder)):
            raise
        # NumPy, MLX and torch give no errno, and Python no file name, if writing fails after the file was opened.
        raise OSError(number or errno.EIO, reason or f"cannot be written: {error}", str(path)) from error


def create_private(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a new file that only this user can read. An existing file stays, unless ``replace`` is set.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        if replace:
            draft.rename(path)
            return
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder_write(folder: Path) -> Iterator[Path]:
    """Yield a new folder to write into. At the end it replaces ``folder``; if writing fails, it is removed."""
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        yield new
        new.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
