"""``kakeya-runner serve``, ``once`` and ``serve-ssh``."""

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

import click

from bridge.bus.wire import EXIT_CODES
from bridge.common.cli.commands import FILE, FOLDER, PATH, flag, option
from bridge.common.cli.output import put
from bridge.errors import ExitCode, InfrastructureError, UsageError
from bridge.system.signals import StopRequest, Withdrawal
from bridge.system.spawn import DEVNULL, start
from runner.cli.common import policies_argument, policies_of, stop_on_signals, tell
from runner.context import open_runner
from runner.direct.job import answer_manifest
from runner.direct.ssh import Relay, check_call, key_line, pack, send, withdraw_if_closed
from runner.direct.streams import LogShown, read_manifest, say_answer
from runner.doctor.presets import allowed_names
from runner.doctor.readiness import trust
from runner.host.models import with_workflow_models
from runner.parts import Keys
from runner.policy import Policy, default_path, load_policy
from runner.serve.loop import keep_results, once, serve
from runner.service.several import load_members, serve_several
from runner.state import signing_key
from runner.state.health import DAMAGED

_CAFFEINATE = "/usr/bin/caffeinate"


@click.command()
@policies_argument
@option("--limit", click.IntRange(min=1), metavar="N", help="Stop after N requests.")
@flag("--awake keep_awake", "Keep a Mac from sleeping while the runner serves.")
@option("--turns", FOLDER, hidden=True, help="Folder in which the runners of one service take turns.")
@click.pass_obj
def serve_command(
    policy: Path | None, others: tuple[Path, ...], limit: int | None, turns: Path | None, *, keep_awake: bool
) -> None:
    """Serve requests from the bus until stopped.

    With several policies, one service serves a bus for each, and their jobs run one at a time.

    SIGTERM, SIGHUP and ^C stop the runner and return a running job to the queue (or finish it, with `on_stop: finish`
    in the policy).
    """
    files = policies_of(policy, others)
    if len(files) > 1:
        if limit is not None:
            raise UsageError(
                "--limit counts the requests of one policy", fix="Name one policy, or leave it out."
            )
        members, stop = load_members(files, tell), StopRequest()
        stop_on_signals(stop)
        tell(f"serving {len(members)} buses, one job at a time: {', '.join(each.bus for each in members)}")
        serve_several(members, tell, stop, *(["--awake"] if keep_awake else []))
        tell("stopped")
        return
    rules = load_policy(files[0] if others else policy)
    handled = None
    while handled is None:
        try:
            handled = _serve(rules, limit, turns, keep_awake=keep_awake)
        except InfrastructureError as error:
            if error.code != DAMAGED:
                raise
            tell(error.message)
    tell(f"stopped after {handled} requests")


def _serve(rules: Policy, limit: int | None, turns: Path | None, *, keep_awake: bool) -> int:
    say = tell if turns is None else lambda message: tell(f"{rules.bus.url}: {message}")
    with open_runner(rules, say, turns) as context:
        stop_on_signals(context.process.stop)
        if turns is not None:
            _stop_with_parent(context.process.stop)
        context.process.heartbeat.begin(context.policy.state)
        _warn_unsigned(context.policy.state, context.keys)
        tell(
            f"serving {context.bus.url} as {context.identity.id}; sandbox: {context.machine.sandbox.kind}"
            f"; allowed presets: {', '.join(allowed_names(context.presets, context.policy)) or 'none'}"
        )
        if context.policy.trust.code_request == "signed" and (check := trust(context.policy)).ok is not True:
            tell(f"{check.message}. {check.fix}")
        for error in context.presets.broken.values():
            tell(f"invalid preset ignored: {error.message}")
        try:
            with _awake() if keep_awake else nullcontext():
                return serve(context, limit=limit)
        finally:
            context.process.heartbeat.end()


def _stop_with_parent(stop: StopRequest) -> None:
    """Stop once the service that this runner is one of is gone: then its end of the standard input is closed."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(sys.stdin.fileno(), 1):
                pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()


def _warn_unsigned(state_folder: Path, keys: Keys) -> None:
    """Say once that answers are not signed, if the runner has no key."""
    if signing_key.must_warn(state_folder, signs=keys.signer is not None):
        tell(signing_key.UNSIGNED)


@contextmanager
def _awake() -> Iterator[None]:
    """Keep the system from sleeping while it is idle or on mains power. Does nothing except on a Mac.

    ``caffeinate -w`` watches this process, so it also ends if this process is killed.
    """
    if sys.platform != "darwin":
        yield
        return
    argv = [_CAFFEINATE, "-is", "-w", str(os.getpid())]
    keeper = start(argv, env={}, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield
    finally:
        keeper.terminate()
        keeper.wait()


@click.command()
@option("--branch", help="The request branch.")
@option("--commit", metavar="ID", help="Handle the request only if this is its commit.")
@option(
    "--results", FOLDER, metavar="DIR", help="Also write the answer's files here, for the workflow to keep."
)
@option("--manifest", PATH, metavar="FILE", help="Answer this manifest, without a bus; - is standard input.")
@option("--out", PATH, metavar="DIR", help="With --manifest: new or empty folder for the answer.")
@click.pass_obj
def once_command(
    policy: Path | None, branch: str | None, commit: str | None, results: Path | None, manifest: Path | None,
    out: Path | None,
) -> int:  # fmt: skip
    """Handle one request and exit with its exit code.

    With --branch, it is a branch of the bus, as in workflows of GitHub Actions. A branch that is already answered is
    left alone. If another runner holds the request, if it is left to one, or if it waits for approval or its manifest,
    the exit code is 3.

    With --manifest, it is one that `kakeya manifest` printed, as in jobs of other queues: policy, limits, sandbox,
    gate and key are the same. One job of this machine runs at a time. A signal cancels the job, and the answer says so.

    KAKEYA_MAC_VERIFIER_PATH, KAKEYA_MAC_DRAFTER_ID and KAKEYA_MAC_FTHETA_DIR in the environment choose the models, if
    the policy's actions.models allows them.
    """
    if manifest is not None and out is not None and not (branch or commit or results):
        return _answer(policy, manifest, out)
    if branch is None or manifest is not None or out is not None:
        fix = "Write: kakeya-runner once --branch BRANCH, or: kakeya-runner once --manifest FILE --out DIR"
        raise UsageError("once needs --branch, or --manifest with --out and nothing of a branch", fix=fix)
    with open_runner(with_workflow_models(load_policy(policy), tell), tell) as context:
        stop_on_signals(context.process.stop)
        _warn_unsigned(context.policy.state, context.keys)
        state = once(context, branch, commit)
        if results:
            keep_results(context, branch, results)
    return ExitCode.INFRASTRUCTURE if state is None else EXIT_CODES.get(state, ExitCode.INFRASTRUCTURE)


def _answer(policy: Path | None, manifest: Path, out: Path) -> int:
    content, withdrawal = read_manifest(manifest), Withdrawal()
    stop_on_signals(withdrawal)
    rules = with_workflow_models(load_policy(policy), tell)
    answer = answer_manifest(rules, content, out, withdrawal=withdrawal, observer=LogShown(), tell=tell)
    say_answer(answer)
    return int(answer.report.conclusion.exit_code or 0)


@click.command()
@option(
    "--allow", FILE, metavar="FILE",
    help="Only print the line for authorized_keys that lets this public key use the command, and nothing else.",
)  # fmt: skip
@click.pass_obj
def serve_ssh_command(policy: Path | None, allow: Path | None) -> int:
    """Answer the one manifest that an SSH client sends.

    It is the forced command of a client's key. The manifest comes on standard input; the answer's folder goes to
    standard output as a tar archive; the log goes to standard error while the job runs. Nothing that the client asks
    for beside is done. If the connection ends, the job is cancelled. Exits with the job's exit code.
    """
    if allow is not None:
        load_policy(policy)
        put(key_line(allow, policy or default_path()))
        return 0
    check_call()
    withdrawal, archives = Withdrawal(), list[IO[bytes]]()
    withdraw_if_closed(withdrawal)
    relay = Relay()
    atexit.register(relay.finish)
    stop_on_signals(withdrawal)
    rules = load_policy(policy)
    answer = answer_manifest(
        rules, read_manifest(Path("-")), None, withdrawal=withdrawal, observer=LogShown(), tell=tell,
        use=lambda folder: archives.append(pack(folder)),
    )  # fmt: skip
    # The next job may run while the client reads.
    send(archives[0])
    say_answer(answer)
    return int(answer.report.conclusion.exit_code or 0)
