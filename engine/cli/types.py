"""Parameter types that several commands share."""

from collections.abc import Iterable

import click


class ListOf(click.ParamType):
    """A comma-separated list in one argument, its items among a fixed choice: ``2,3`` becomes ``(2, 3)``."""

    name = "list"

    def __init__(self, choices: Iterable[int | str]) -> None:
        self.choices = tuple(choices)
        self.known = {str(choice): choice for choice in self.choices}

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Show the choices in the help."""
        return f"LIST OF [{'|'.join(self.known)}]"

    def convert(self, value, param, ctx):  # noqa: D102
        if not isinstance(value, str):
            return tuple(value)
        items = [item.strip() for item in value.split(",")]
        for item in items:
            if item not in self.known:
                self.fail(f"{item!r} is not one of {', '.join(self.known)}", param, ctx)
        return tuple(dict.fromkeys(self.known[item] for item in items))
