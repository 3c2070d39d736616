"""The commands about all points of a sweep, which need more modules than those about one request."""

from typing import TYPE_CHECKING

import click

from bridge.cli.common import buses_of

if TYPE_CHECKING:
    from bridge.cli.groups.acting import GroupCommands


def named_group(context: click.Context, name: str | None) -> "GroupCommands | None":
    """Return the commands about the sweep that a name means, if it means one; without a name, what was sent last."""
    buses = buses_of(context)
    if (group_id := buses.group_id(name)) is None:
        return None
    from bridge.cli.groups.acting import GroupCommands  # noqa: PLC0415 - slow to import, and seldom needed
    from bridge.groups import find_group  # noqa: PLC0415

    group = find_group(buses, group_id)
    return GroupCommands(group) if group else None
