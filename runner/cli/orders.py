"""Orders to a running runner: ``kakeya-runner drain`` and ``maintenance``."""

from datetime import timedelta
from pathlib import Path

import click
import psutil

from bridge.bus.presence import RunnerState
from bridge.common.cli.commands import Duration, option
from bridge.common.cli.output import say
from bridge.errors import InfrastructureError
from runner.cli.common import ACK_S, for_each_policy, policies_argument
from runner.policy import load_policy
from runner.state.heartbeat import serving_process
from runner.state.orders import Orders, wait_until_ended, wait_until_heard


@click.command()
@policies_argument
@option(
    "--wait", Duration(), metavar="DUR",
    help="Wait until the runner has ended, for at most DUR (90s, 15m, 2h).",
)  # fmt: skip
@click.pass_obj
def drain_command(policy: Path | None, others: tuple[Path, ...], wait: timedelta | None) -> int:
    """Let the running runner finish its job, take no other request, and end with exit code 0.

    A service that `kakeya-runner install` made does not start it again until the next start of the machine, or until
    you start the service.
    """
    drained: dict[Path | None, psutil.Process] = {}

    def drain(file: Path | None) -> None:
        drained[file] = _drain(load_policy(file).state, waits=wait is not None)

    def await_end(file: Path | None) -> None:
        if wait is not None and file in drained:
            _await_end(drained[file], wait)

    # With several, all get the order before the first one's end is awaited.
    codes = [for_each_policy(policy, others, work) for work in (drain, await_end)]
    return next((code for code in codes if code), 0)


def _drain(state: Path, *, waits: bool) -> psutil.Process:
    process = serving_process(state)
    if process is None:
        fix = "`kakeya-runner status` shows what the state folder says."
        raise InfrastructureError(f"no runner serves with {state}", fix=fix, code="not_serving")
    Orders(state).drain(process)
    runner = f"the runner {process.pid}"
    if not wait_until_heard(state, process, RunnerState.DRAINING, ACK_S):
        say(f"{runner} has not noted it yet: it is fetching or pushing, and drains after that")
    elif not waits:
        say(f"{runner} takes no other request, and ends after its job")
    return process


def _await_end(process: psutil.Process, wait: timedelta) -> None:
    if not wait_until_ended(process, wait.total_seconds()):
        fix = "It still ends after its job. `kakeya-runner status` shows the job."
        raise InfrastructureError(
            f"the runner {process.pid} has not ended in time", fix=fix, code="still_draining"
        )
    say("the runner has ended")


@click.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@policies_argument
@option(
    "--reason", str, "", show_default=False,
    help="Reason, shown to everybody who reads the bus.",
)  # fmt: skip
@click.pass_obj
def maintenance_command(policy: Path | None, switch: str, others: tuple[Path, ...], reason: str) -> int:
    """Let the runner take no requests until further notice (on), or let it take them again (off).

    A job that runs is finished. The runner stays alive and tells requesters so. A restart does not end maintenance.
    """

    def maintain(file: Path | None) -> None:
        _maintain(load_policy(file).state, switch, reason)

    return for_each_policy(policy, others, maintain)


def _maintain(state: Path, switch: str, reason: str) -> None:
    state.mkdir(parents=True, exist_ok=True)
    orders = Orders(state)
    if switch == "off" and not orders.resume():
        say("it was not in maintenance")
        return
    if switch == "on":
        orders.maintain(reason)
    process = serving_process(state)
    mode = RunnerState.MAINTENANCE if switch == "on" else RunnerState.SERVING
    if process is None:
        say(f"noted in {state}; no runner serves with it now")
    elif wait_until_heard(state, process, mode, ACK_S):
        say("the runner takes no requests" if switch == "on" else "the runner takes requests again")
    else:
        say(f"noted; the runner {process.pid} is fetching or pushing, and sees it after that")
