"""Parameter types that several commands share."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from bridge.reports.cache_spec import split_list

# What a model computes in; "stored" is the type of its files. Plain names, so that `--help` does not load MLX.
DTYPES = ("float32", "float16", "bfloat16", "stored")


MOST_SCALE = 1e6


class _List(click.ParamType[tuple[Any, ...]]):
    """A comma-separated list in one argument, without repetitions."""

    name = "list"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """Return the items."""
        return tuple(dict.fromkeys(self.items(value) if isinstance(value, str) else value))

    def items(self, text: str) -> Iterable[Any]:
        """Return the items of an argument."""
        return (item.strip() for item in text.split(","))


class Names(_List):
    """A list of names."""

    def items(self, text: str) -> Iterable[str]:  # noqa: D102
        return filter(None, super().items(text))


class CacheSpecs(_List):
    """A list of cache specs; ``k=...,v=...`` is one of them."""

    def items(self, text: str) -> Iterable[str]:  # noqa: D102
        return split_list(text)


class ListOf(_List):
    """A list whose items are among a fixed choice: ``2,3`` becomes ``(2, 3)``."""

    def __init__(self, choices: Iterable[int | str]) -> None:
        self.known = {str(choice): choice for choice in choices}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Show the choices in the help."""
        return f"LIST OF [{'|'.join(self.known)}]"

    def items(self, text: str) -> Iterable[int | str]:  # noqa: D102
        for item in super().items(text):
            if item not in self.known:
                self.fail(f"{item!r} is not one of {', '.join(self.known)}")
            yield self.known[item]


class Numbers(_List):
    """A list of numbers: ``1,2,4`` becomes ``(1, 2, 4)``.

    Args:
        least: the smallest allowed.
        most: the largest.
        kind: ``int`` for whole numbers, written in digits alone, or ``float``.
    """

    name = "numbers"

    def __init__(self, least: float, most: float, kind: type = int) -> None:
        self.least, self.most, self.kind = least, most, kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Show the range in the help."""
        return f"LIST OF {self.least}..{self.most}"

    def items(self, text: str) -> Iterable[float]:  # noqa: D102
        return (self._number(item) for item in super().items(text))

    def _number(self, text: str) -> float:
        if self.kind is float or (text.isascii() and text.isdigit()):
            with suppress(ValueError):
                number: float = self.kind(text)
                if self.least <= number <= self.most:
                    return number
        return self.fail(f"{text!r} is not a number from {self.least} to {self.most}")


class EmbedScale(click.ParamType[float | str]):
    """A positive number, or the word ``target`` or ``both``."""

    name = "number|target|both"

    def convert(  # noqa: D102
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if value in ("target", "both"):
            return str(value)
        with suppress(TypeError, ValueError):
            number = float(value)
            if 0 < number < MOST_SCALE:
                return number
        return self.fail(f"{value!r} is neither a positive number, target nor both", param, ctx)
