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


class Numbers(click.ParamType):
    """A comma-separated list of whole numbers in one argument: ``1,2,4`` becomes ``(1, 2, 4)``."""

    name = "numbers"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Show the range in the help."""
        return f"LIST OF {self.least}..{self.most}"

    def convert(self, value, param, ctx):  # noqa: D102
        if not isinstance(value, str):
            return tuple(value)
        found = []
        for item in value.split(","):
            text = item.strip()
            if not (text.isascii() and text.isdigit() and self.least <= int(text) <= self.most):
                self.fail(f"{text!r} is no number from {self.least} to {self.most}", param, ctx)
            found.append(int(text))
        return tuple(dict.fromkeys(found))
