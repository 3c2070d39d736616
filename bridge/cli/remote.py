"""``kakeya list`` and ``kakeya gc``."""

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import click
from rich.table import Column

from bridge.bus import branch_names
from bridge.bus.remote import Remote
from bridge.buses import Answer, Buses, silent_error
from bridge.cli.common import (
    buses_of,
    key_option,
    remote_option,
    say_silent,
    state_text,
    verdict_text,
    with_bus,
)
from bridge.client import Client
from bridge.common.cli.commands import Duration, flag, json_option, option
from bridge.common.cli.output import put, put_json, say
from bridge.common.cli.screen import Grid, console
from bridge.errors import UsageError
from bridge.requests.answered.sweep import Swept
from bridge.requests.status import Status
from bridge.requests.waiting import Code

# At most this many reasons for waiting, and this many names of figures, are shown.
_REASONS = _NAMES = 5

# People copy branch names, so the table must not cut them.
_WIDTH = 250


@click.command()
@option("-n --limit", click.IntRange(1, 10_000), 20, help="Number of requests to list, newest first.")
@option(
    "--claims", is_flag=False, flag_value="", metavar="[NAME]",
    help="Show how claimed figures changed over time, or all figures that match NAME (decode_*).",
)  # fmt: skip
@option("--group", metavar="GROUP", help="Only the requests of this sweep, all of them.")
@remote_option
@key_option
@json_option
@click.pass_context
def list_command(
    context: click.Context, limit: int, claims: str | None, group: str | None, *, as_json: bool
) -> None:
    """List the requests on the remote, with the verdicts on their answers and who signed them.

    With --claims each answer is verified first. If it fails verification, did not succeed or was not accepted by the
    gate, its values are left out of the trends; --json shows them with `counts` false.
    """
    buses = buses_of(context)
    if claims is not None:
        _trends(buses, limit, claims or None, group, as_json=as_json)
        return
    rows, answers = buses.newest(limit, group=group)
    is_complete = _say_left_out(answers)
    if as_json:
        for bus, status in rows:
            put_json(with_bus(bus.label if buses.several else None, status.as_dict()))
        return
    statuses = [status for _, status in rows]
    if not statuses:
        if is_complete and group is not None:
            say(f"no request on the remote is of the group {group}")
        elif is_complete:
            say("there are no requests on the remote. Send one: kakeya run noop --wait")
        return
    has_groups = any(status.group for status in statuses)
    more = [*(["group"] if has_groups else []), *(["bus"] if buses.several else [])]
    table = Grid("state", "preset", "age", "runner", "verdict", *more, "branch")
    for bus, status in rows:
        age = _age(time.time() - branch_names.nonce_time(status.nonce)) if status.nonce else ""
        shown = status.shown
        row = (
            status.preset,
            age,
            status.runner or "",
            verdict_text(shown) if status.answered else "",
            *([status.group or ""] if has_groups else []),
            *([bus.label] if buses.several else []),
            status.branch,
        )
        waits = status.reason is not None and status.reason.code is Code.FORWARD
        table.add_row("waiting to be forwarded" if waits else state_text(shown), *row)
    _print(table)
    # Only reasons that somebody may have to act on.
    reasons = [status.reason for status in statuses if status.reason]
    stuck = [reason.text() for reason in reasons if reason.is_stuck or reason.code is Code.FORWARD]
    for text, count in Counter(stuck).most_common(_REASONS):
        say(f"{count} waiting: {text}")


def _say_left_out(answers: Sequence[Answer[list[Status]]]) -> bool:
    """Say which buses and how many requests are missing and why, and how to read one. Returns whether none is.

    Raises:
        InfrastructureError: no bus answers.
    """
    if all(answer.error for answer in answers):
        raise silent_error(answers)
    say_silent(answers)
    remotes = [answer.client.remote for answer in answers if answer.client and not answer.error]
    for remote in remotes:
        _say_missing(remote)
    is_empty = any(remote.unfetched or remote.skipped for remote in remotes)
    return not is_empty and not any(answer.error for answer in answers)


def _say_missing(remote: Remote) -> None:
    missing = (remote.skipped, "came too slowly"), (sorted(remote.unfetched), "could not be fetched")
    for branches, reason in missing:
        if branches:
            count = "1 branch is" if len(branches) == 1 else f"{len(branches)} branches are"
            say(f"{count} left out, which {reason}. Fetch one with: kakeya status {branches[0]}")


def _trends(buses: Buses, limit: int, name: str | None, group: str | None, *, as_json: bool) -> None:
    from bridge.common.drawing.text import cell, number  # noqa: PLC0415 - a plain list does not pay for reports
    from bridge.show.trends import group_into_trends, read_figures, sparkline  # noqa: PLC0415

    rows, answers = buses.newest(limit, verified=False, group=group)
    ended = [(bus, status.branch) for bus, status in rows if status.answered]
    answered = [branch for _, branch in ended]
    figures = [figure for bus, branch in ended[::-1] for figure in read_figures(bus.client, [branch])]
    _say_left_out(answers)
    trends = group_into_trends(figure for figure in figures if figure.fits(name))
    if as_json:
        for trend in trends:
            for line in trend.lines():
                put_json(line)
        return
    if not trends:
        say(why_no_figures(limit, answered, sorted({figure.name for figure in figures}), name))
        return
    numbers = (Column(heading, justify="right") for heading in ("runs", "first", "last", "least", "most"))
    table = Grid("claim", "of", "preset", *numbers, "trend")
    left_out = 0
    for trend in trends:
        values = [value.value for value in trend.values if value.counts]
        left_out += len(trend.values) - len(values)
        ends = [values[0], values[-1], min(values), max(values)] if values else []
        shown = [*map(number, ends)] or [""] * 4
        named = map(cell, (trend.name, trend.about, trend.preset))
        table.add_row(*named, str(len(values)), *shown, sparkline(values))
    _print(table)
    if left_out:
        say(
            f"{left_out} values are left out of the trends: their answers were not accepted or failed verification"
        )


def why_no_figures(limit: int, answered: Sequence[str], names: Sequence[str], name: str | None) -> str:
    """Return why no figure is listed, and where the figures of these answers are."""
    among = f"among the newest {limit} requests. --limit looks further back"
    if not answered:
        return f"there is no answer {among}."
    if not names:
        return f"no report with figures {among}; `kakeya report` shows the last answer."
    if name:
        return f"no figure matches {name!r} {among}. There are: {', '.join(names[:_NAMES])}."
    return (
        f"no answer claims a figure {among}. Figures in rows of reports are listed by name, such as "
        f"{', '.join(names[:_NAMES])}: kakeya list --claims {shlex.quote(names[0])}"
    )


def _print(table: Grid) -> None:
    out = console()
    out.width = _WIDTH
    out.print(table)


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


@click.command()
@option("--older-than", Duration(), "14d", help="Minimum age of the requests to remove.")
@flag("--remote-branches", "Also delete answered requests on the remote that were sent from this clone.")
@flag("--everybody", "With --remote-branches: those of everybody, also if not sent from here.")
@flag("--dry-run -n", "Only list them; remove nothing.")
@remote_option
@json_option
@click.pass_context
def gc_command(
    context: click.Context,
    older_than: timedelta,
    *,
    remote_branches: bool,
    everybody: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove records of old requests, here or on the remote.

    In this clone only the records of sent requests are removed. On the remote, a request without an answer is deleted
    only if it was cancelled before a runner took it, or has expired.
    """
    if everybody and not remote_branches:
        raise UsageError("--everybody needs --remote-branches", fix="Add it, or leave both out.")
    buses = buses_of(context)

    def sweep(client: Client) -> Swept:
        return client.sweep(older_than, remote=remote_branches, everybody=everybody, dry_run=dry_run)

    answers = buses.ask(sweep, at_once=False)
    for answer in answers:
        label, swept = answer.bus.label if buses.several else None, answer.value
        if swept is None:
            say_silent([answer])
            continue
        if as_json:
            put_json(with_bus(label, {"dry_run": dry_run, "branches": swept.gone}))
            continue
        for branch in swept.gone:
            put(branch)
        where = f" of {label}" if label else ""
        say(f"{len(swept.gone)} {'would be ' if dry_run else ''}removed{where}")
        reasons = list(swept.explain_unswept(f"{older_than.total_seconds() / 86400:g} days"))
        for reason in reasons:
            say(f"  {reason}")
        if not swept.gone and not reasons:
            say("  there are no requests to remove")
    return next((int(answer.error.exit_code) for answer in answers if answer.error), 0)
