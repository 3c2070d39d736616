"""A click group whose commands are imported when they are called."""

from importlib import import_module
from typing import Any

import click

_SENTENCE = 200  # characters; every first sentence is shorter


class LazyGroup(click.Group):
    """A group that knows where its commands live: ``{"probe": "package.module:attribute"}``.

    Showing the group's help imports the command modules, which therefore import nothing heavy themselves.
    """

    def __init__(self, *args: Any, commands_at: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in alphabetical order."""
        return sorted(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command; None if the name is unknown."""
        if cmd_name not in self.commands_at:
            return None
        module, _, attribute = self.commands_at[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentence, which click would cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(limit=_SENTENCE)) for name, each in found if each]
            )
