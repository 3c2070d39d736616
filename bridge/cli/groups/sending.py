"""``kakeya run`` with a parameter that lists several values: sends a request for each point, and waits for all."""

from collections.abc import Sequence
from datetime import timedelta

from bridge.buses import Buses
from bridge.cli.common import untracked_note, with_bus
from bridge.cli.groups.following import wait_for
from bridge.common.cli.output import put, put_json, say
from bridge.errors import KakeyaError
from bridge.groups import Ask, Group, Point, choose, quota_note, start
from bridge.requests.outbox import unseen_where_read
from bridge.show.forms.words import ago


def run_sweep(
    buses: Buses, preset: str, texts: Sequence[str], ask: Ask, limit: timedelta | None, slower: float | None, *,
    waits: bool, as_json: bool,
) -> int | None:  # fmt: skip
    """Send the missing requests, wait for all answers if ``waits``; return the exit code, or None without a sweep."""
    bus, points = choose(buses, preset, texts, ask)
    if not points.swept:
        return None
    if ask.snapshot and (note := untracked_note(bus.client.git)):
        say(note)
    group = start(bus, preset, points, ask)
    client = group.client
    try:
        send_rest(group, waits=waits)
        first = group.points[0].branch
        if first and (places := unseen_where_read(client.remote, first)):
            say(f"note: {places}, where the requests are not seen. Both must be the same repository")
        if waits:
            return wait_for(group, limit, slower, as_json=as_json)
    except KakeyaError as error:
        error.sends_again = False
        raise
    if as_json:
        shown = [point.as_dict() for point in group.points]
        put_json({
            **with_bus(group.label, {"event": "sent"}), "branch": group.id, "group": group.id, "preset": preset,
            "existing": group.existing, "points": shown,
        })  # fmt: skip
        return 0
    # All commands take the group's id in place of a branch, so scripts need not know that it was a sweep.
    put(group.id)
    say(f"next: kakeya wait {group.id}")
    return 0


def send_rest(group: Group, *, waits: bool) -> None:
    """Send a group's missing requests, and show each. If that ends early, print how to continue."""
    count, unsent = len(group.points), len(group.unsent)
    if group.label:
        say(f"note: the bus is {group.label}")
    say(
        f"group {group.id}: {count} points"
        + (f", {count - unsent} of them sent before" if group.existing else "")
    )
    for point in group.points:
        if point.reused:
            say(f"{point.name}: answered {ago(point.reused.ended_at)} ago: {point.reused.text}")
    if unsent and (note := quota_note(group.client, unsent, group.plan)):
        say(f"note: {note}")
    try:
        group.send(_show, waits=waits)
    except (KeyboardInterrupt, KakeyaError):
        if group.is_recorded:
            sent = count - len(group.unsent)
            say(f"{sent} of {count} points were sent" + (", and continue on the remote" if sent else ""))
            say(f"next: kakeya wait {group.id} sends the rest and waits; kakeya cancel {group.id} ends all")
        raise


def _show(point: Point, session: str | None) -> None:
    say(f"{point.name}: {point.branch}")
    if session:
        say(f"note: it is on {session}, from where a runner forwards it")
