"""Text that a user gives to a command."""

import sys
from pathlib import Path


def is_typed() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def from_stdin() -> str:
    """Return all of standard input; BadInput if it is closed, or not text in UTF-8."""
    return _read(None)


def from_file(path: Path) -> str:
    """Return the text of a file; BadInput if it is not text in UTF-8."""
    return _read(path)


def _read(path: Path | None) -> str:
    if path is None and sys.stdin is None:
        from engine.errors import BadInput

        raise BadInput("standard input is closed", "write the text to it, or start the command in a terminal")
    try:
        return (path.read_bytes() if path else sys.stdin.buffer.read()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        from engine.errors import BadInput

        raise BadInput(f"the prompt cannot be read: {error}", "it has to be text in UTF-8") from error
