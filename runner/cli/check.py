"""`kakeya-runner check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bridge.checks import Check, show_as_they_come
from bridge.console import json_option
from runner.check.readiness import SERVING, examine


@click.command()
@json_option
@click.pass_obj
def command(policy: Path | None, *, as_json: bool) -> int:
    """Check this host: policy, bus, interpreter, models, presets.

    The models that the presets need are really loaded, as jobs would load them. Nothing is downloaded.
    Ends with 0 where it can serve, with 1 where it cannot.
    """
    return show_as_they_come(examine(policy), next_step, as_json=as_json)


def next_step(found: Sequence[Check]) -> str:
    """Return what is left to do on a host that is ready: nothing where a runner serves it already."""
    serves = any(check.name == SERVING for check in found)
    return "a runner is serving" if serves else "kakeya-runner serve"
