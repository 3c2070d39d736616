"""Reports a job's progress to somebody who watches on this machine."""

from collections.abc import Collection, Sequence


class Observer:
    """The interface for progress reports. This base class ignores them."""

    def begins(self, step: int, argv: Sequence[str], names: Collection[str]) -> None:
        """Report that a step begins, with the names of the variables in its environment."""

    def prints(self, data: bytes) -> None:
        """Report output, sanitised and without secrets. Another thread may call this method."""
