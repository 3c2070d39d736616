"""`kakeya-runner serve`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from runner.cli.common import stop_on_signals, tell
from runner.host.awake import awake
from runner.policy import load_policy
from runner.serve.loop import serve
from runner.session import open_session


@click.command()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N requests.")
@click.option("--awake", "keep_awake", is_flag=True, help="Keep a Mac from sleeping meanwhile.")
@click.pass_obj
def command(policy: Path | None, limit: int | None, *, keep_awake: bool) -> None:
    """Take requests from the bus until stopped.

    SIGTERM and ^C hand a running job back (or finish it, where the policy says `on_stop: finish`) and end the runner.
    """
    with open_session(load_policy(policy), tell) as session:
        stop_on_signals(session.stop)
        session.pulse.begin(session.policy.state)
        tell(
            f"serving {session.bus.url} as {session.identity.id}; sandbox: {session.sandbox.kind}"
            f"; presets: {', '.join(session.presets)}"
        )
        for error in session.presets.broken.values():
            tell(f"a preset is left out: {error.message}")
        try:
            with awake() if keep_awake else nullcontext():
                handled = serve(session, limit=limit)
        finally:
            session.pulse.end()
        tell(f"stopped after {handled} requests")
