"""The commands about all points of a sweep, which need more modules than those about one request."""

from typing import TYPE_CHECKING

import click

from bridge.cli.common import buses_of
from bridge.requests.groups.names import GROUP

if TYPE_CHECKING:
    from bridge.cli.groups.acting import GroupCommands


def named_group(context: click.Context, name: str | None) -> "GroupCommands | None":
    """Return the commands about the group with this id; None if the name is not a group's id."""
    if name is None or not GROUP.fullmatch(name):
        return None
    from bridge.cli.groups.acting import GroupCommands  # noqa: PLC0415 - slow to import, and seldom needed
    from bridge.groups import find_group  # noqa: PLC0415

    group = find_group(buses_of(context), name)
    return GroupCommands(group) if group else None
