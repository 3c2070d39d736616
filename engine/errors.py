"""The engine's exceptions, and the exit code that each one ends a command with.

EngineError            1   something the user can act on: one line, and how to fix it
+-- MissingPackage     1   a package of the engine's extras is absent or cannot be loaded
+-- BadInput           2   a file, an array, a spec or an option that cannot be used as asked
|   +-- OutOfReach     3   the same, and another attempt may succeed: the hub did not answer
+-- RollbackError      1   a cache could not be taken back to the tokens that were kept
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
        # The full text: the base class cuts long text, because others may have written it, and the reason
        # often follows a long path.
        self.args, self.message, self.fix = (message,), message, fix


class MissingPackage(EngineError):  # noqa: N818 - reads as what it is
    """A package of the engine's extras is absent or cannot be loaded."""


class BadInput(EngineError):  # noqa: N818
    """A file, an array, a spec or an option that cannot be used as asked."""

    exit_code = ExitCode.USAGE


class OutOfReach(BadInput):
    """A model that is not here, on a hub that did not answer."""

    exit_code = ExitCode.INFRASTRUCTURE


class RollbackError(EngineError):
    """A cache could not be taken back to the tokens that were kept."""
