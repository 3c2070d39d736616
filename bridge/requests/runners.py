"""Reads the runners' presence records from a bus: a limited number, and only signed ones if keys are pinned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bridge.bus import objects, presence
from bridge.bus.history import RequestBranch
from bridge.bus.wire import StateFile
from bridge.common import limits
from bridge.manifest import parse_time
from bridge.presets.announced import Offers, unpack
from bridge.presets.load import Offer
from bridge.presets.model import Preset
from bridge.requests.sighting import RunnerSighting
from bridge.system.git import Git
from bridge.verify.public_keys import PublicKey
from bridge.verify.state_signature import is_signed_presence

# Far larger than any commit of a presence record.
_COMMIT_BYTES = 4096


def read_runners(
    git: Git,
    refs: Mapping[str, str],
    keys: Sequence[PublicKey] = (),
    unchanged_s: Callable[[str, str], float] = lambda _ref, _commit: 0.0,
) -> list[RunnerSighting]:
    """Return the records on these references, given as ``{reference: commit id}``, newest first.

    With keys, records without a valid signature for their reference are left out. ``unchanged_s`` returns for how many
    seconds this clone has seen a reference at its commit.
    """
    there = objects.locate(git, refs.values()).items()
    fit = {oid for oid, entry in there if entry.kind == "commit" and entry.size <= _COMMIT_BYTES}
    small = {ref: oid for ref, oid in refs.items() if oid in fit}
    if keys:
        raws = dict(objects.each_content(git, list(dict.fromkeys(small.values()))))
        small = {ref: oid for ref, oid in small.items() if is_signed_presence(raws[oid], ref, keys)}
    signed = True if keys else None
    sightings: list[RunnerSighting] = []
    # Read the records one after another: a thousand of the largest size would not fit into memory.
    for ref, oid in small.items():
        names = [f"{oid}:{presence.FILE}", f"{oid}:{presence.DETAILS}"]
        data, more = objects.read_many(git, names, max_bytes=limits.PRESENCE_BYTES)
        if record := presence.parse(data, ref):
            details = presence.parse_details(more)
            about = presence.Details.model_dump(details) if details else {}
            sightings.append(RunnerSighting(record, 0.0, signed, **about))
    newest = sorted(sightings, key=lambda sighting: sighting.record.at_s, reverse=True)[
        : limits.PRESENCES_SHOWN
    ]
    return [
        replace(sighting, unchanged_s=unchanged_s(sighting.record.ref, small[sighting.record.ref]))
        for sighting in newest
    ]


def read_offers(git: Git, refs: Mapping[str, str], runners: Sequence[RunnerSighting]) -> Offers:
    """Return what runners offer, by their records on these references. Earlier runners in the list come first."""
    offered: dict[str, list[Offer]] = {}
    definitions: dict[str, tuple[Preset, Offer]] = {}
    bytes_left = limits.OFFERED_BYTES
    for sighting in runners:
        record = sighting.record
        digests = record.presets or {}
        offers = {name: Offer(record.id, digest, sighting.signed) for name, digest in digests.items()}
        for name, offer in offers.items():
            offered.setdefault(name, []).append(offer)
        path = f"{refs.get(record.ref, '')}:{presence.PRESETS}"
        most = min(limits.PRESENCE_DEFINITION_BYTES, bytes_left)
        (data,) = objects.read_many(git, [path], max_bytes=most)
        bytes_left -= len(data or b"")
        for name, preset in unpack(data, digests).items():
            if len(definitions) < limits.OFFERED_DEFINITIONS:
                definitions.setdefault(name, (preset, offers[name]))
    return Offers(offered, definitions)


def with_jobs(
    runners: Sequence[RunnerSighting], branches: Mapping[str, RequestBranch]
) -> list[RunnerSighting]:
    """Update the records with the request that each runner holds according to the request branches.

    The branches are more recent, because a runner updates its record only together with another push.
    """
    states = [branch.state for branch in branches.values() if branch.state and branch.current_state.is_taken]
    holds = {state.runner.instance: state for state in states}

    def updated(sighting: RunnerSighting) -> RunnerSighting:
        record = sighting.record
        if record.instance not in holds and record.busy_with not in branches:
            return sighting
        state = holds.get(record.instance)
        record = record.model_copy(update={"busy_with": state.branch if state else None})
        return replace(sighting, record=record, lease_ends_at=_lease_end(state) if state else None)

    return [updated(sighting) for sighting in runners]


def _lease_end(state: StateFile) -> float | None:
    """Return when the lease of a state ends, by its runner's clock; None if it has no valid time."""
    try:
        return parse_time(state.at).timestamp() + state.lease_s
    except ValueError:
        return None
