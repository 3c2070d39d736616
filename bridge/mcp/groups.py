"""The tools for sweeps: a group takes the place of its requests."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from bridge.bus.wire import State
from bridge.buses import Buses
from bridge.errors import KakeyaError
from bridge.groups import Ask, Group, choose, start, worst
from bridge.mcp import models
from bridge.mcp.bounds import short
from bridge.requests.status import Event, Status

# At most this many points that did not succeed are named.
_NAMED = 3


def run(buses: Buses, args: models.Ask) -> models.Sent | None:
    """Send a request for each missing point; None without a sweep."""
    ask = Ask(
        args.ref, args.snapshot, timedelta(seconds=args.expires_s), args.labels, against=args.against or None,
        idempotency_key=args.idempotency_key or None, reuse=args.reuse,
    )  # fmt: skip
    bus, points = choose(buses, args.preset, args.params, ask)
    if not points.swept:
        return None
    group = start(bus, args.preset, points, ask)
    existing = group.existing
    group.send(lambda _point, _session: None, waits=False)
    return models.Sent(branch=group.id, existing=existing, points=len(group.points), bus=group.label)


def standing(group: Group) -> models.Standing:
    """Return the status of all points together. The exit code is that of the worst point, once all have ended."""
    looked = group.statuses()
    statuses = [(point, status) for point, status in looked if isinstance(status, Status)]
    gone = [(point, status) for point, status in looked if isinstance(status, KakeyaError)]
    unsent = 0 if group.is_cancelled else len(group.unsent)
    done = not unsent and all(status.state.is_final for _, status in statuses)
    counts = Counter(str(status.shown.state) for _, status in statuses)
    parts = [f"{count} {state}" for state, count in counts.most_common()]
    parts += [f"{group.absent} more without a branch"] if group.absent else []
    parts += [f"{unsent} not sent yet: kakeya_wait sends them"] if unsent else []
    codes = {
        int(status.exit_code or 0): status.shown.state for _, status in statuses if status.state.is_final
    }
    code = worst([*codes, *group.unsent_codes, *(int(error.exit_code) for _, error in gone)])
    bad = [f"{point.name} {status.shown.word}" for point, status in statuses if status.exit_code]
    bad += [f"{point.name}: {error.code}" for point, error in gone]
    parts += [f"{len(gone)} cannot be read"] if gone else []
    is_begun = any(status.state is not State.REQUESTED for _, status in statuses)
    open_state = State.RUNNING if is_begun else State.REQUESTED
    return models.Standing(
        branch=group.id,
        state=str(codes.get(code, State.LOST if gone else State.CANCELLED) if done else open_state),
        done=done,
        exit_code=code if done else None,
        outlook=f"{len(group.points)} points: {', '.join(parts)}. kakeya_list with this group lists them",
        untrusted_detail=short("; ".join([*bad[:_NAMED], *(["..."] if len(bad) > _NAMED else [])])) or None,
    )


def wait(group: Group, seconds: float, record: Callable[[Event], None]) -> None:
    """Send the missing requests, and wait for all points for at most ``seconds``."""
    if not group.is_cancelled:
        group.send(lambda _point, _session: None, waits=True)
    ended = list(group.follow(seconds, lambda _point, event: record(event)))
    if len(ended) == len(group.points):
        group.close()
