"""The engine's exceptions, and the exit code that each one ends a command with.

EngineError            1   something the user can act on: one line, and how to fix it
+-- MissingPackage     1   a package of the engine's extras is absent or cannot be loaded
+-- BadInput           2   a file, an array, a spec or an option cannot be used
|   +-- OutOfReach     3   the same, but another attempt may succeed: the hub did not answer
+-- RollbackError      1   a cache could not be rolled back to the kept tokens
"""

from bridge.common.errors import ExitCode, KakeyaError


class EngineError(KakeyaError):
    """A failure that is not a bug.

    Args:
        message: what went wrong, one line, no full stop.
        fix: what to do about it; empty if there is nothing to say.
    """

    fix: str

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        # Keep the full text. The base class cuts long text, which others may have written; here, the reason
        # often follows a long path.
        self.args, self.message, self.fix = (message,), message, fix


class MissingPackage(EngineError):  # noqa: N818 - reads as what it is
    """A package of the engine's extras is absent or cannot be loaded."""


class BadInput(EngineError):  # noqa: N818
    """A file, an array, a spec or an option cannot be used."""

    exit_code = ExitCode.USAGE


class OutOfReach(BadInput):
    """A model is not on this machine, and the hub did not answer."""

    exit_code = ExitCode.INFRASTRUCTURE


class RollbackError(EngineError):
    """A cache could not be rolled back to the kept tokens."""
