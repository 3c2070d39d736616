"""Parameter types that several commands share."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from bridge.reports.cache_spec import split_list

# What a model computes in; "stored" is the type of its files. Plain names, so that `--help` does not load MLX.
DTYPES = ("float32", "float16", "bfloat16", "stored")


MOST_SCALE = 1e6


class ListOf(click.ParamType[tuple[int | str, ...]]):
    """A comma-separated list in one argument, its items among a fixed choice: ``2,3`` becomes ``(2, 3)``."""

    name = "list"

    def __init__(self, choices: Iterable[int | str]) -> None:
        self.choices = tuple(choices)
        self.known = {str(choice): choice for choice in self.choices}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Show the choices in the help."""
        return f"LIST OF [{'|'.join(self.known)}]"

    def convert(  # noqa: D102
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | str, ...]:
        if not isinstance(value, str):
            return tuple(value)
        items = [item.strip() for item in value.split(",")]
        for item in items:
            if item not in self.known:
                self.fail(f"{item!r} is not one of {', '.join(self.known)}", param, ctx)
        return tuple(dict.fromkeys(self.known[item] for item in items))


class Numbers(click.ParamType[tuple[float, ...]]):
    """A comma-separated list of numbers in one argument: ``1,2,4`` becomes ``(1, 2, 4)``.

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

    def convert(  # noqa: D102
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if not isinstance(value, str):
            return tuple(value)
        items = [item.strip() for item in value.split(",")]
        return tuple(dict.fromkeys(self._number(item, param, ctx) for item in items))

    def _number(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if self.kind is float or (text.isascii() and text.isdigit()):
            with suppress(ValueError):
                number: float = self.kind(text)
                if self.least <= number <= self.most:
                    return number
        return self.fail(f"{text!r} is not a number from {self.least} to {self.most}", param, ctx)


class Names(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of names."""

    name = "list"

    def convert(  # noqa: D102
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> tuple[str, ...]:
        if not isinstance(value, str):
            return tuple(value)
        return tuple(dict.fromkeys(item.strip() for item in value.split(",") if item.strip()))


class CacheSpecs(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of cache specs; ``k=...,v=...`` is one of them."""

    name = "list"

    def convert(  # noqa: D102
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> tuple[str, ...]:
        return tuple(dict.fromkeys(split_list(value) if isinstance(value, str) else value))


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
