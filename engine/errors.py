"""The engine's exceptions.

EngineError            something the user can act on: one line, and a remedy
+-- MissingPackage     a package of the engine's extras is absent or cannot be loaded
+-- BadInput           a file, an array or a spec that cannot be used as asked
+-- RollbackError      a cache could not be taken back to the tokens that were kept
"""


class EngineError(Exception):
    """A failure that is not a bug.

    Args:
        message: what went wrong, one line, no full stop.
        remedy: what to do about it; empty where there is nothing to say.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = remedy


class MissingPackage(EngineError):  # noqa: N818 - reads as what it is
    """A package of the engine's extras is absent or cannot be loaded."""


class BadInput(EngineError):  # noqa: N818
    """A file, an array or a spec that cannot be used as asked."""


class RollbackError(EngineError):
    """A cache could not be taken back to the tokens that were kept."""
