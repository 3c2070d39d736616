"""``kakeya run`` and ``manifest``."""

import difflib
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from bridge.buses import read_values
from bridge.cli.common import (
    buses_of,
    complete_preset,
    finish,
    follow,
    param_option,
    presets_of,
    raw_option,
    remote_option,
    slower_option,
    untracked_note,
    with_bus,
)
from bridge.common.cli.commands import REFERENCE, TEXT, Duration, flag, json_option, option
from bridge.common.cli.output import put, put_json, say
from bridge.errors import KakeyaError, UsageError
from bridge.presets import find_preset, split_params
from bridge.requests.outbox import unseen_where_read
from bridge.requests.request_commit import identity
from bridge.show.forms.words import ago
from bridge.system.git import Git
from bridge.without_bus import make_manifest

if TYPE_CHECKING:
    from bridge.client import Run
    from bridge.requests.answered.reuse import Reused


class _Limit(Duration):
    """An optional time span after an option, so that the next word may belong to something else."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the time span; if the word is not a time span, name the command that was probably meant."""
        if value == _NO_LIMIT:
            return timedelta.max
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            known = presets_of(ctx, ask=False) if ctx else []
            near = difflib.get_close_matches(str(value), known, n=1)
            if not near:
                raise
            hint = f"If you meant the preset, put it first: kakeya run {near[0]} --wait"
            self.fail(f"{error.message}. {hint}", param, ctx)


_NO_LIMIT = "inf"
# A message names at most this many unsent files.
_NAMED = 5


@click.command()
@click.argument("preset", shell_complete=complete_preset)
@param_option
@option("--ref", REFERENCE, "HEAD", help="Commit for the job to work on.")
@option(
    "--against", metavar="REF",
    help="Compare with this commit, in one job.",
)  # fmt: skip
@slower_option
@click.option(
    "--on-branch", type=TEXT, is_flag=False, flag_value="", default=None, metavar="[BRANCH]",
    help="Send it on your own branch, the only one that you may push to.",
)  # fmt: skip
@flag("--reuse", "Take the newest signed answer to the same question, if there is one.")
@flag("--sign", "Sign the request with your SSH key (git's user.signingkey).")
@flag("--snapshot", "Send the uncommitted changes of tracked files too.")
@click.option(
    "--wait", "wait", type=_Limit(), is_flag=False, flag_value=_NO_LIMIT, default=None, metavar="[DUR]",
    help="Follow the job until it ends, or for at most DUR (90s, 15m, 2h).",
)  # fmt: skip
@flag("--quiet -q", "With --wait: show states, not the log.")
@raw_option
@option("--expires", Duration(), "24h", help="How long the request may wait for a runner.")
@option("--label labels", multiple=True, help="Require a runner with this label; repeatable.")
@option("--requested-by", help="Name of the requester.  [default: git's user.email]")
@option(
    "--idempotency-key key", metavar="TEXT",
    help="Send nothing if a request was already sent under this key; continue with that one.",
)  # fmt: skip
@option(
    "--prefix", help="Start of the request branch's name.  [default: KAKEYA_BRANCH_PREFIX, else detected]"
)
@option("--suffix", help="End of the request branch's name.  [default: KAKEYA_BRANCH_SUFFIX, else detected]")
@remote_option
@json_option
@click.pass_context
def run_command(
    context: click.Context, preset: str, params: tuple[str, ...], ref: str, wait: timedelta | None, expires: timedelta,
    labels: tuple[str, ...], requested_by: str | None, key: str | None, against: str | None, on_branch: str | None,
    prefix: str | None, suffix: str | None, slower: float | None, *, reuse: bool, sign: bool, snapshot: bool,
    quiet: bool, raw: bool, as_json: bool,
) -> int:  # fmt: skip
    """Request a job.

    Pushes one request branch and prints its name. Does not change your working tree, index, HEAD or branches.

    `-p n=2,4,8` is a sweep: one request for each value, and for each combination of several lists, at most 64.
    Semicolons separate values with commas. The same command, or `kakeya wait GROUP`, continues after an interruption.
    """
    if slower is not None and (against is None or wait is None):
        fix = f"Write: kakeya run {preset} --against REF --wait --fail-if-slower 5%"
        raise UsageError("--fail-if-slower needs --against and --wait", fix=fix)
    limit = None if wait == timedelta.max else wait
    buses = buses_of(context, prefix=prefix, suffix=suffix)
    if any("," in text or ";" in text for text in params):
        from bridge.cli.groups.sending import run_sweep  # noqa: PLC0415 - seldom needed, and slow to import
        from bridge.groups import Ask  # noqa: PLC0415

        ask = Ask(
            ref, snapshot, expires, labels, requested_by, sign, idempotency_key=key, against=against,
            on_branch=on_branch, reuse=reuse,
        )  # fmt: skip
        code = run_sweep(buses, preset, params, ask, limit, slower, waits=wait is not None, as_json=as_json)
        if code is not None:
            return code

    content = {"ref": ref, "snapshot": snapshot, "against": against}
    earlier = buses.find_answer(preset, params, **content) if reuse else None
    if earlier:
        run = earlier[0]
    else:
        bus = buses.choose(preset, labels, key, requested_by)
        run = bus.sent(bus.client.run(
            preset, read_values(bus.client, preset, params), ref=ref, snapshot=snapshot, lifetime=expires,
            labels=labels, requested_by=requested_by, sign=sign, idempotency_key=key, against=against,
            on_branch=on_branch,
        ))  # fmt: skip
    try:
        _tell(run, earlier[1] if earlier else None, reuse=reuse, snapshot=snapshot)
        if as_json:
            sent = {"branch": run.branch, "request": run.commit, "preset": preset, "existing": run.existing}
            more = {"session": run.session, "answered_at": earlier and earlier[1].ended_at}
            more = {name: value for name, value in more.items() if value}
            put_json({**with_bus(run.bus, {"event": "sent"}), **sent, **more})
        elif wait is None:
            put(run.branch)
            say(f"next: kakeya {'fetch' if earlier else 'wait'} {run.branch}")
        else:
            say(run.branch)
        if wait is None:
            return 0
        status = follow(run, limit, as_json=as_json, logs=not quiet, raw=raw)
        return finish(run, status, as_json=as_json, slower=slower)
    except KakeyaError as error:
        error.sends_again = key is None
        raise


def _tell(run: "Run", earlier: "Reused | None", *, reuse: bool, snapshot: bool) -> None:
    """Print what the user should know about the sent request, or about the earlier answer that replaces it."""
    if run.bus:
        say(f"note: the bus is {run.bus}")
    if earlier:
        say(f"note: answered {ago(earlier.ended_at)} ago: {earlier.text}")
        return
    if reuse:
        say("note: no signed answer to the same question was found, so the job runs")
    if snapshot and (note := untracked_note(run.client.git)):
        say(note)
    if run.session:
        say(f"note: it is on {run.session}, from where a runner forwards it")
    elif places := unseen_where_read(run.client.remote, run.branch):
        say(f"note: {places}, where the request is not seen. Both must be the same repository")


@click.command()
@click.argument("preset", shell_complete=complete_preset)
@param_option
@option("--expires", Duration(), "24h", help="How long the request may wait for the runner.")
@option("--label labels", multiple=True, help="Require a runner with this label; repeatable.")
@option("--requested-by", help="Name of the requester.  [default: git's user.email]")
@click.pass_context
def manifest_command(
    context: click.Context, preset: str, params: tuple[str, ...], expires: timedelta, labels: tuple[str, ...],
    requested_by: str | None,
) -> None:  # fmt: skip
    """Print the manifest of a job, for a runner without a git bus.

    It is for one job: `kakeya manifest PRESET | ssh HOST > answer.tar`, or `kakeya-runner once --manifest -`.
    """
    known = find_preset(presets_of(context, ask=False), preset)
    values = known.read_params(split_params(params, known.params))
    who = requested_by or identity(Git.of_user(context.obj["repo"])).email
    request = make_manifest(known, values, lifetime=expires, labels=labels, requested_by=who)
    put_json(request.model_dump(exclude_none=True))
