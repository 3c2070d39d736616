"""Waits for all points of a group, and shows the outcome of each."""

from datetime import timedelta

from bridge.cli.common import Outcome, outcome_of, state_text, verdict_text, with_bus
from bridge.common.cli.output import Colored, put_json, say
from bridge.common.cli.screen import Grid, console
from bridge.errors import KakeyaError
from bridge.groups import Group, Point, worst
from bridge.requests.status import Event
from bridge.show.forms.words import color

_WIDTH = 250


def wait_for(group: Group, limit: timedelta | None, slower: float | None, *, as_json: bool) -> int:
    """Wait for all points, print their outcomes, and return the exit code of the worst."""
    from bridge.verify import check as _check  # noqa: F401, PLC0415 - slow to import, and the requests are sent

    ended: list[tuple[Point, Outcome | KakeyaError]] = []
    shown: dict[int, tuple[object, str]] = {}

    def show(point: Point, event: Event) -> None:
        now = (event.status.state, event.status.detail)
        if event.note:
            say(f"{point.name}: {event.note}")
        elif shown.get(point.index) != now:
            words, detail = event.status.shown, event.status.detail
            say(f"{point.name}: ", Colored(words.word, color(words.grade)), f": {detail}" if detail else "")
            shown[point.index] = now

    try:
        for point, run, status in group.follow(None if limit is None else limit.total_seconds(), show):
            outcome = status if isinstance(status, KakeyaError) else outcome_of(run, status, slower)
            ended.append((point, outcome))
            for line in [outcome.message] if isinstance(outcome, KakeyaError) else outcome.lines:
                say(f"  {line}")
    except KeyboardInterrupt:
        say("")
        say("the requests continue on the remote")
        say(f"next: kakeya wait {group.id}, or kakeya cancel {group.id}")
        raise
    ended.sort(key=lambda each: each[0].index)
    group.close()
    if group.absence:
        say(f"note: {group.absence}")
    codes = [
        int(outcome.exit_code) if isinstance(outcome, KakeyaError) else outcome.code for _, outcome in ended
    ]
    codes += [int(code) for code in group.unsent_codes]
    code = worst(codes)
    if as_json:
        put_json(_document(group, ended, code))
        return code
    _print(group, ended)
    if any(not isinstance(outcome, KakeyaError) and outcome.code == 0 for _, outcome in ended):
        say(f"next: kakeya report {group.id}")
    return code


def _document(group: Group, ended: list[tuple[Point, Outcome | KakeyaError]], code: int) -> dict[str, object]:
    """Return the object for ``--json``: all points, and the fields of a single answer for all points together."""
    outcomes = [outcome for _, outcome in ended if isinstance(outcome, Outcome)]
    states = {outcome.code: outcome.shown.state for outcome in reversed(outcomes)}
    holding = sum(outcome.fields["holds"] is True for outcome in outcomes)
    count = len(group.points)
    points = [_fields(point, outcome) for point, outcome in ended] + [
        point.as_dict() for point in group.unsent
    ]
    document: dict[str, object] = {
        "event": "answer", "branch": group.id, "group": group.id, "exit_code": code, "state": states.get(code),
        "holds": holding == count, "signed": all(outcome.fields["signed"] is True for outcome in outcomes),
        "verified": f"{holding} of {count} answers hold", "points": points,
    }  # fmt: skip
    return with_bus(group.label, document)


def _fields(point: Point, outcome: Outcome | KakeyaError) -> dict[str, object]:
    if isinstance(outcome, KakeyaError):
        return {**point.as_dict(), **outcome.as_dict()}
    return {**point.as_dict(), **outcome.fields}


def _print(group: Group, ended: list[tuple[Point, Outcome | KakeyaError]]) -> None:
    table = Grid("point", "state", "verdict", "exit code", "branch")
    for point, outcome in ended:
        if isinstance(outcome, KakeyaError):
            table.add_row(point.name, outcome.code, "", str(int(outcome.exit_code)), point.branch or "")
        else:
            cells = (
                state_text(outcome.shown),
                verdict_text(outcome.shown) if outcome.fields["holds"] is not None else "",
            )
            table.add_row(point.name, *cells, str(outcome.code), point.branch or "")
    for point in group.unsent:
        table.add_row(point.name, "not sent", "", "", "")
    out = console()
    out.width = _WIDTH
    out.print(table)
