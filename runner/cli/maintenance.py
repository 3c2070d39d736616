"""``kakeya-runner maintenance``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.bus.presence import Standing
from bridge.common.cli.commands import option
from bridge.common.cli.output import say
from runner.cli.common import ACK_S
from runner.policy import load_policy
from runner.state.orders import Orders
from runner.state.serving import heard, serving_process


@click.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@option(
    "--reason", str, "", show_default=False,
    help="Why, for those whose requests wait. Everybody who reads the bus sees it.",
)  # fmt: skip
@click.pass_obj
def command(policy: Path | None, switch: str, reason: str) -> None:
    """Let the runner take no requests until further notice (on), or let it take them again (off).

    A job that runs is finished. The runner stays alive and tells requesters so. A restart does not end maintenance.
    """
    state = load_policy(policy).state
    state.mkdir(parents=True, exist_ok=True)
    orders = Orders(state)
    if switch == "off" and not orders.resume():
        say("it was not in maintenance")
        return
    if switch == "on":
        orders.maintain(reason)
    process = serving_process(state)
    mode = Standing.MAINTENANCE if switch == "on" else Standing.SERVING
    if process is None:
        say(f"noted in {state}; no runner serves with it now")
    elif heard(state, process, mode, ACK_S):
        say("the runner takes no requests" if switch == "on" else "the runner takes requests again")
    else:
        say(f"noted; the runner {process.pid} is fetching or pushing, and sees it after that")
