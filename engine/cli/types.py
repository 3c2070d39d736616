"""Parameter types that several commands share."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, TEXT
from bridge.reports.cache_spec import canonical, split_list

# The types in which a model can compute; "stored" is the type of its files. Names only, so that `--help` needs no MLX.
DTYPES = ("float32", "float16", "bfloat16", "stored")
MOST_SCALE = 1e6


class Items(click.ParamType[tuple[Any, ...]]):
    """A list in one argument, without repetitions. If ``split`` raises a ValueError, its message is shown.

    ``kind`` is the type of the whole argument: ``TEXT`` or ``REFERENCE``.
    """

    name = "list"

    def __init__(
        self, split: Callable[[str], Iterable[Any]], metavar: str | None = None, kind: Any = TEXT
    ) -> None:
        self.split, self.metavar, self.kind = split, metavar, kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Show the choices or the range in the help."""
        return self.metavar or super().get_metavar(param, ctx)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the items."""
        try:
            items = self.split(self.kind.convert(value, param, ctx)) if isinstance(value, str) else value
            return tuple(dict.fromkeys(items))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _between_commas(text: str) -> Iterable[str]:
    return (item.strip() for item in text.split(","))


def _cache_specs(text: str) -> Iterable[str]:
    specs = split_list(text)  # keeps `k=...,v=...` together
    if not specs:
        raise ValueError("the list names no cache spec")
    return map(canonical, specs)


class _CacheSpec(click.ParamType[str]):
    """A cache spec, in its shortest form. Whether the model can use it is known once it is loaded."""

    name = "spec"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        return "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return canonical(TEXT.convert(value, param, ctx))


NAMES = Items(lambda text: filter(None, _between_commas(text)), kind=REFERENCE)
CACHE_SPECS = Items(_cache_specs)
CACHE_SPEC = _CacheSpec()


def list_of(choices: Iterable[int | str]) -> Items:
    """Return the type of lists of fixed choices: ``2,3`` becomes ``(2, 3)``."""
    known = {str(choice): choice for choice in choices}

    def split(text: str) -> Iterable[int | str]:
        for item in _between_commas(text):
            if item not in known:
                raise ValueError(f"{item!r} is not one of {', '.join(known)}")
            yield known[item]

    return Items(split, f"LIST OF [{'|'.join(known)}]")


def numbers(least: float, most: float, kind: type = int) -> Items:
    """Return the type of lists of numbers from ``least`` to ``most``: ``1,2,4`` becomes ``(1, 2, 4)``.

    ``kind`` is ``int`` for whole numbers, written in digits alone, or ``float``.
    """

    def number(text: str) -> float:
        if kind is float or (text.isascii() and text.isdigit()):
            with suppress(ValueError):
                value: float = kind(text)
                if least <= value <= most:
                    return value
        raise ValueError(f"{text!r} is not a number from {least} to {most}")

    return Items(lambda text: map(number, _between_commas(text)), f"LIST OF {least}..{most}")


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
