"""``kakeya-runner check``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bridge.checks import Check, show_as_they_come
from bridge.common.cli.commands import json_option
from runner.check.readiness import SERVING, examine


@click.command()
@json_option
@click.pass_obj
def command(policy: Path | None, *, as_json: bool) -> int:
    """Check this host: policy, bus, interpreter, models, presets.

    Loads the models that the presets need, as jobs would load them. Downloads nothing.
    Exits with 0 if this host can serve, otherwise with 1.
    """
    return show_as_they_come(examine(policy), next_step, as_json=as_json)


def next_step(checks: Sequence[Check]) -> str:
    """Return the next step on a host that is ready; nothing if a runner serves already."""
    serves = any(check.name == SERVING for check in checks)
    return "a runner is serving" if serves else "kakeya-runner serve"
