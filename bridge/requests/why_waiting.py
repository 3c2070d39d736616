"""Finds out why requests wait: reads their manifests, counts the queue, and calls ``explain_wait``."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bridge.bus import branch_names, objects, wire
from bridge.bus.branch_names import Requester, age_sort_key
from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.common import strict_json
from bridge.errors import ManifestError
from bridge.manifest import Request, parse_manifest, parse_time
from bridge.presets import Preset
from bridge.requests.sighting import RunnerSighting
from bridge.requests.waiting import QueuePosition, Reason, WaitingRequest, explain_wait
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo

# At most this many manifests are in memory at once.
_AT_ONCE = 100
_HOUR_S = 3600.0


def reasons(
    git: Git,
    branches: Mapping[str, RequestBranch],
    runners: Sequence[RunnerSighting],
    presets: Mapping[str, Preset],
    patterns: Iterable[str],
    now: float,
) -> dict[str, Reason]:
    """Return why each unclaimed request waits, by branch name. ``branches`` must be all that are on the bus."""
    waiting = sorted(
        (name for name in branches if branches[name].current_state is State.REQUESTED), key=age_sort_key
    )
    if not waiting:
        return {}
    started = [
        name
        for name, branch in branches.items()
        if branch.state and branch.current_state is not State.REQUESTED and now - _at(branch.state) < _HOUR_S
    ]
    manifests = _read(git, [branches[name] for name in (*waiting, *started)])
    known = branch_names.pattern_prefixes(patterns)
    who = {
        name: branch_names.unsigned_requester(name, request.requested_by if request else "", known)
        for name, request in manifests.items()
    }
    places = _places([name for name in waiting if not branches[name].cancel], started, who)
    requests = {name: _waiting_request(branches[name], manifests[name], presets) for name in waiting}
    requests |= {
        name: replace(requests[name], has_manifest=False)
        for name in _without_file(git, [branches[name] for name in waiting if manifests[name] is None])
    }
    anywhere = QueuePosition(len(waiting))
    return {
        name: explain_wait(request, runners, places.get(name, anywhere), now)
        for name, request in requests.items()
    }


def needs_approval(branch: RequestBranch) -> Reason:
    """Return the reason for a request that waits for approval."""
    return explain_wait(_waiting_request(branch, None, {}), (), QueuePosition(), 0.0)


def expired(git: Git, branch: RequestBranch) -> Reason:
    """Return the reason for a request that expired before a runner took it."""
    (request,) = _read(git, [branch]).values()
    return explain_wait(_waiting_request(branch, request, {}), (), QueuePosition(), time.time())


def _places(
    waiting: Sequence[str], started: Iterable[str], who: Mapping[str, Requester]
) -> dict[str, QueuePosition]:
    """Return the queue places of the requests, which are given oldest first."""
    shares = branch_names.turn_cycle_lengths(who[branch] for branch in waiting)
    before: Counter[Requester] = Counter()
    begun = Counter(who[branch] for branch in started)
    places = {}
    for i, branch in enumerate(waiting):
        me = who[branch]
        ahead = min(len(waiting) - 1, (before[me] + 1) * shares[me] - 1)
        places[branch] = QueuePosition(len(waiting), i, before[me], ahead, begun[me])
        before[me] += 1
    return places


def _waiting_request(
    branch: RequestBranch, request: Request | None, presets: Mapping[str, Preset]
) -> WaitingRequest:
    state = branch.state
    needs_approval = state is not None and state.detail.startswith(wire.WAITS_FOR_APPROVAL)
    preset = presets.get(request.preset) if request else None
    labels = {*((request.labels if request else None) or ()), *(preset.labels if preset else ())}
    return WaitingRequest(
        branch=branch.name,
        commit=branch.request,
        preset=request.preset if request else None,
        labels=frozenset(labels),
        cancelled=branch.cancel is not None,
        made_at=parse_time(request.created_at).timestamp() if request and request.created_at else 0.0,
        expires_at=parse_time(request.expires_at).timestamp() if request and request.expires_at else None,
        held=state.detail if state and needs_approval else "",
        held_by=state.runner.id if state and needs_approval else "",
        declined_by=frozenset(wire.declined_by(state)),
    )


def _without_file(git: Git, branches: Sequence[RequestBranch]) -> list[str]:
    """Return the names of the branches whose request has no manifest at all."""
    paths = {branch.name: f"{branch.request}:{wire.REQUEST}" for branch in branches}
    too_large: dict[str, ObjectInfo] = {}
    there = objects.locate(git, paths.values(), too_large)
    return [name for name, path in paths.items() if path not in there and path not in too_large]


def _read(git: Git, branches: Sequence[RequestBranch]) -> dict[str, Request | None]:
    requests: dict[str, Request | None] = dict.fromkeys(branch.name for branch in branches)
    for i in range(0, len(branches), _AT_ONCE):
        some = branches[i : i + _AT_ONCE]
        names = [f"{branch.request}:{wire.REQUEST}" for branch in some]
        blobs = objects.read_many(git, names, max_bytes=strict_json.MAX_BYTES)
        for branch, blob in zip(some, blobs, strict=True):
            with suppress(ManifestError):
                requests[branch.name] = parse_manifest(blob or b"")
    return requests


def _at(state: wire.StateFile) -> float:
    try:
        return parse_time(state.at).timestamp()
    except ValueError:
        return 0.0
