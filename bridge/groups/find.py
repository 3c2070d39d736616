"""Finding a group by its id: in this clone's record, or by the names of branches on a bus."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from bridge.bus import objects, wire
from bridge.bus.remote import Remote
from bridge.buses import Bus, Buses
from bridge.common import strict_json
from bridge.common.advice import REMOTE, Advice
from bridge.errors import KakeyaError, ManifestError, UsageError
from bridge.groups.group import Group, Point
from bridge.manifest import Request, parse_manifest
from bridge.presets.points import differing, point_name
from bridge.requests.groups.names import GROUP, members, place_of
from bridge.requests.groups.plan import Plan, Plans
from bridge.requests.status import Status

if TYPE_CHECKING:
    from bridge.client import Client


def find_group(buses: Buses, name: str) -> Group | None:
    """Return the group with an id: from this clone's record, or else from the names of branches on a bus.

    None if ``name`` is no group's id.

    Raises:
        UsageError: this clone sent it to another bus.
    """
    if not GROUP.fullmatch(name):
        return None
    first = buses.first
    if plan := Plans(first.client.git).read(name):
        return Group.of(_bus_of(buses, plan), plan)
    sent = first.client.sent.branches()
    # An ordinary nonce has 12 digits too. One of a request that was sent from here is known without the remote.
    if any(name in branch for branch in sent) and not members(sent, name):
        return None
    for answer in buses.ask(lambda client: client.list(verified=False, group=name)):
        if answer.value:
            return _of_claims(answer.bus, name, answer.value)
    return None


def _bus_of(buses: Buses, plan: Plan) -> Bus:
    """Return the bus that a group was sent to, so that its missing requests go there too."""
    for bus in buses.buses:
        if bus.remote == plan.remote:
            return bus
    try:
        url = Remote.of(buses.first.client.git, plan.remote).url
    except UsageError:
        if not buses.several:
            # The remote was renamed or removed, and there is no choice.
            return buses.first
        url = None
    for bus in buses.buses:
        with suppress(KakeyaError):
            if bus.client.remote.url == url:
                return bus
    fix = Advice("Choose that bus with ", REMOTE, ".")
    message = f"the group {plan.group} was sent to another bus: {plan.remote}"
    raise UsageError(message, fix=fix, code="other_bus")


def _of_claims(bus: Bus, name: str, statuses: Sequence[Status]) -> Group:
    """Return the group that the names of branches show."""
    params = {status.branch: _params(bus.client, status.request) for status in statuses}
    swept = differing(list(params.values()))
    points = []
    absent: set[int] = set()
    for branch, own in params.items():
        if place := place_of(branch):
            points.append(Point(place.index, point_name(own, swept), own, branch))
            absent |= {*range(place.count)}
    absent -= {point.index for point in points}
    return Group(bus, name, points, existing=True, absent=len(absent))


def _params(client: "Client", commit: str) -> Mapping[str, object]:
    return request.params if (request := _request(client, commit)) else {}


def _request(client: "Client", commit: str) -> Request | None:
    data = objects.read_blob(client.git, commit, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
    try:
        return parse_manifest(data or b"")
    except ManifestError:
        return None
