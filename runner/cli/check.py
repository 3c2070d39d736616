"""`kakeya-runner check`."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.checks import show_as_they_come
from bridge.command import json_option
from runner.examine import examine


@click.command()
@json_option
@click.pass_obj
def command(policy: Path | None, *, as_json: bool) -> int:
    """Check this host: policy, bus, interpreter, presets.

    Ends with 0 where it can serve, with 1 where it cannot.
    """
    return show_as_they_come(examine(policy), "kakeya-runner serve", as_json=as_json)
