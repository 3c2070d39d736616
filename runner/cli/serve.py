"""``kakeya-runner serve``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from bridge.common.cli.commands import flag, option
from bridge.errors import InfrastructureError
from runner.check.presets import allowed_names
from runner.check.readiness import trust
from runner.cli.common import stop_on_signals, tell
from runner.context import open_runner
from runner.host.awake import awake
from runner.policy import Policy, load_policy
from runner.serve.loop import serve
from runner.state.health import DAMAGED


@click.command()
@option("--limit", click.IntRange(min=1), metavar="N", help="Stop after N requests.")
@flag("--awake keep_awake", "Keep a Mac from sleeping while the runner serves.")
@click.pass_obj
def command(policy: Path | None, limit: int | None, *, keep_awake: bool) -> None:
    """Serve requests from the bus until stopped.

    SIGTERM, SIGHUP and ^C stop the runner and return a running job to the queue (or finish it, with `on_stop: finish`
    in the policy).
    """
    rules = load_policy(policy)
    handled = None
    while handled is None:
        try:
            handled = _serve(rules, limit, keep_awake=keep_awake)
        except InfrastructureError as error:
            if error.code != DAMAGED:
                raise
            tell(error.message)
    tell(f"stopped after {handled} requests")


def _serve(rules: Policy, limit: int | None, *, keep_awake: bool) -> int:
    """Serve with one context, and return how many requests were handled."""
    with open_runner(rules, tell) as context:
        stop_on_signals(context.stop)
        context.heartbeat.begin(context.policy.state)
        tell(
            f"serving {context.bus.url} as {context.identity.id}; sandbox: {context.sandbox.kind}"
            f"; allowed presets: {', '.join(allowed_names(context.presets, context.policy)) or 'none'}"
        )
        if context.policy.trust.code_request == "signed" and (check := trust(context.policy)).ok is not True:
            tell(f"{check.message}. {check.fix}")
        for error in context.presets.broken.values():
            tell(f"invalid preset ignored: {error.message}")
        try:
            with awake() if keep_awake else nullcontext():
                return serve(context, limit=limit)
        finally:
            context.heartbeat.end()
