"""The commands about one request: ``kakeya status``, ``wait``, ``logs``, ``cancel``, ``fetch`` and ``verify``."""

from datetime import timedelta

import click

from bridge.bus.notes import change_note, subject_of
from bridge.bus.wire import EXIT_CODES
from bridge.checklist import show
from bridge.cli.common import (
    answer_folder,
    finish,
    follow,
    key_option,
    pin_of,
    presets_of,
    raw_option,
    request_argument,
    run_of,
    slowdown_code,
    slower_option,
    state_text,
    timeout_option,
    verdict_text,
    with_bus,
)
from bridge.cli.groups import named_group
from bridge.client import Run
from bridge.common.cli.commands import flag, json_option, option
from bridge.common.cli.output import Colored, put, put_block, put_json, say
from bridge.errors import ExitCode, UsageError
from bridge.reports.readable import readable
from bridge.requests.request_commit import identity
from bridge.show.forms.words import color
from bridge.verify.answer_checks import gaps
from bridge.verify.verdict import verified


@click.command()
@request_argument
@json_option
@click.pass_context
def status_command(context: click.Context, request: str | None, *, as_json: bool) -> None:
    """Show the state of a request.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository.
    """
    if group := named_group(context, request):
        group.status(as_json=as_json)
        return
    run = run_of(context, request)
    status = run.status()
    if status.answered:
        status = status.concluded(run.verify().conclusion)
    if as_json:
        put_json(with_bus(run.bus, status.as_dict()))
        return
    from bridge.common.cli.screen import Grid, console  # noqa: PLC0415 - slow to import

    table = Grid()
    table.add_row("branch", status.branch)
    if run.bus:
        table.add_row("bus", run.bus)
    table.add_row("state", state_text(status.shown))
    if status.answered and not status.shown.is_refused:
        table.add_row("verdict" if status.shown.judged else "signed", verdict_text(status.shown))
    for name in ("detail", "runner", "at", "step", "request"):
        value = getattr(status, name)
        if value not in (None, ""):
            table.add_row(name, str(value))
    if status.outlook:
        table.add_row("runner seen" if status.life else "waits" if status.reason else "queue", status.outlook)
    if status.last_line:
        table.add_row("last line", status.last_line)
    console().print(table)


@click.command()
@request_argument
@timeout_option
@slower_option
@json_option
@click.pass_context
def wait_command(
    context: click.Context,
    request: str | None,
    timeout: timedelta | None,
    slower: float | None,
    *,
    as_json: bool,
) -> int:
    """Wait for an answer, verify it, and exit with its exit code.

    If the answer fails verification, the exit code is 1, whatever the answer says about the job.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository. Of a group, the exit code is the first of 1, 124, 5, 7, 4, 3 and 6 that a point has.
    """
    if group := named_group(context, request):
        return group.wait(timeout, slower, as_json=as_json)
    run = run_of(context, request)
    status = follow(run, timeout, as_json=as_json, logs=False)
    return finish(run, status, as_json=as_json, slower=slower)


@click.command()
@request_argument
@flag("-f --follow following", "Follow the log until the job has ended.")
@raw_option
@timeout_option
@json_option
@click.pass_context
def logs_command(
    context: click.Context, request: str | None, timeout: timedelta | None, *, following: bool, raw: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Print a job's log.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository. With -f the exit code is the job's.
    """
    if group := named_group(context, request):
        return group.logs(timeout, following=following, raw=raw, as_json=as_json)
    run = run_of(context, request)
    if following:
        return int(EXIT_CODES[follow(run, timeout, as_json=as_json, raw=raw).state])
    status = run.status()
    text = run.logs()
    cut = [log.path for log in run.client.result(run.branch).logs if log.truncated] if status.answered else []
    if as_json:
        put_json(
            with_bus(run.bus, {"branch": run.branch, "state": status.state, "truncated": cut, "log": text})
        )
        return 0
    put_block(text if raw else readable(text))
    if cut:
        say(f"note: only the head and tail of {', '.join(cut)} were kept")
    return 0


@click.command()
@request_argument
@option("--reason", str, "", show_default=False, help="Reason, in a few words; the answer will show it.")
@json_option
@click.pass_context
def cancel_command(context: click.Context, request: str | None, reason: str, *, as_json: bool) -> None:
    """Cancel a request: ask the runner to stop the job.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository.
    A runner confirms the cancellation; `kakeya wait` then exits with 6, also if no runner had taken the request.
    """
    if group := named_group(context, request):
        group.cancel(reason, as_json=as_json)
        return
    run = run_of(context, request)
    status = run.cancel(reason)
    if as_json:
        put_json(with_bus(run.bus, status.as_dict()))
    elif status.answered:
        say(f"{status.branch} had already ended: {status.state}")
    elif status.state.is_final:
        say(f"{status.branch} is cancelled: no runner had taken it")
    else:
        say(f"asked the runner to stop {status.branch}")
        say(f"next: kakeya wait {status.branch}")


@click.command()
@request_argument
@option(
    "--out", click.Path(file_okay=False), metavar="DIR",
    help="Output folder.  [default: kakeya-results/<preset>-<nonce>]",
)  # fmt: skip
@flag("--notes", "Note the outcome beside the commit that the job was about, for `git log --notes=kakeya`.")
@key_option
@json_option
@click.pass_context
def fetch_command(
    context: click.Context, request: str | None, out: str | None, *, notes: bool, as_json: bool
) -> int:
    """Verify an answer and write its files into a folder.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository.
    The exit code is the job's.
    """
    if group := named_group(context, request):
        return group.fetch(out, _note if notes else None, as_json=as_json)
    run = run_of(context, request)
    fetched = run.fetch(out)
    noted = _note(run) if notes else None
    if as_json:
        files = [str(path) for path in fetched.files]
        shown = fetched.report.conclusion
        put_json({
            **with_bus(run.bus, {"folder": str(fetched.folder)}), "files": files, "state": shown.state,
            "conclusion": shown.as_dict(),
            "result": fetched.result.model_dump(mode="json"), **({"noted": noted} if notes else {}),
        })  # fmt: skip
    else:
        for path in fetched.files:
            put(path)
        for gap in gaps(fetched.result):
            say(f"note: {gap}")
        say(fetched.report.conclusion.text)
        if noted:
            say(f"noted beside {noted[:12]}: git log -1 --notes=kakeya {noted[:12]}")
        elif notes:
            say("note: the answer names no commit that a note could be about")
    return int(fetched.report.conclusion.exit_code or 0)


def _note(run: Run) -> str | None:
    """Note an answer beside the commit that its job was about, and return the commit, if there is one."""
    from bridge.show.forms.note import merged, paragraph  # noqa: PLC0415 - reports are slow to import
    from bridge.show.source import from_branch  # noqa: PLC0415

    git, source = run.client.git, from_branch(run.client, run.branch)
    commit = subject_of(git, source.result.request, source.result.workload)
    if commit:
        change_note(git, commit, identity(git), lambda before: merged(before, paragraph(source)))
    return commit


@click.command()
@request_argument
@key_option
@slower_option
@json_option
@click.pass_context
def verify_command(
    context: click.Context, request: str | None, slower: float | None, *, as_json: bool
) -> int:
    """Verify an answer, from its branch or its folder, and the runner's public key.

    The key must be pinned beforehand: with --key, KAKEYA_PUBLIC_KEY or `git config kakeya.publicKey`, or as
    .kakeya/runner.pub on the remote's default branch. If a key is pinned, an answer that it did not sign fails
    verification.

    REQUEST is a branch, a nonce or a part of either, or a sweep's group; by default what was sent last from this
    repository. A folder that `kakeya fetch` or a runner without a bus wrote works too, outside of any repository.
    Exits with 0 if the answer is valid, whatever the job's own outcome, otherwise with 1.
    """
    folder, run = answer_folder(request), None
    if folder is None and (group := named_group(context, request)):
        return group.verify(slower, as_json=as_json)
    if folder:
        from bridge.verify.folder import verify_folder  # noqa: PLC0415 - seldom needed

        if slower is not None:
            raise UsageError("--fail-if-slower needs a request on the bus, and this is a folder")
        _, report, _ = verify_folder(folder, presets_of(context), pin_of(context))
    else:
        run = run_of(context, request)
        report = run.verify()
    if as_json:
        put_json(with_bus(run.bus if run else None, report.as_dict()))
    else:
        show(report.checks)
        shown = report.conclusion
        if report.shown_gate:
            from bridge.cli.gate import show_gate  # noqa: PLC0415 - slow to import

            show_gate(report.shown_gate, shown, has_runs=True)
        put(Colored(verified(report) if shown.is_refused else f"verified: {shown.text}", color(shown.grade)))
    if run and report.holds and slower is not None:
        return slowdown_code(run.client.comparison(run.branch), slower, run.branch)
    return ExitCode.SUCCEEDED if report.holds else ExitCode.FAILED
