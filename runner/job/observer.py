"""What a job does, for somebody who watches it on this machine."""

from collections.abc import Collection, Sequence


class Observer:
    """Is told what a job does. This one ignores it."""

    def begins(self, step: int, argv: Sequence[str], names: Collection[str]) -> None:
        """Note that a step begins, with the names of the variables in its environment."""

    def prints(self, data: bytes) -> None:
        """Note output, sanitised and without secrets. Another thread may call this."""
