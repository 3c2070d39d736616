"""Reads the runners' presence records from a bus: bounded, and only signed ones where keys are pinned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bridge.bus import lookup, objects, presence
from bridge.bus.history import RequestBranch
from bridge.bus.presence import Presence
from bridge.common import limits
from bridge.requests.waiting import RunnerSighting
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
    commits = lookup.locate(git, refs.values())
    small = {
        ref: oid
        for ref, oid in refs.items()
        if (commit := commits.get(oid)) and commit.kind == "commit" and commit.size <= _COMMIT_BYTES
    }
    if keys:
        raws = dict(objects.each_content(git, list(dict.fromkeys(small.values()))))
        small = {ref: oid for ref, oid in small.items() if is_signed_presence(raws[oid], ref, keys)}
    records: list[tuple[str, str, Presence]] = []
    # Read one after another: a thousand records of the largest size would not fit into memory.
    for ref, oid in small.items():
        (data,) = objects.read_many(git, [f"{oid}:{presence.FILE}"], max_bytes=limits.PRESENCE_BYTES)
        record = presence.parse(data, ref)
        if record is not None:
            records.append((ref, oid, record))
    newest = sorted(records, key=lambda record: record[2].at_s, reverse=True)[: limits.PRESENCES_SHOWN]
    return [
        RunnerSighting(record, unchanged_s(ref, oid), True if keys else None) for ref, oid, record in newest
    ]


def with_jobs(runners: Sequence[RunnerSighting], views: Mapping[str, RequestBranch]) -> list[RunnerSighting]:
    """Update the records with the request that each runner holds according to the request branches.

    The branches are more recent, because a runner announces a job only together with another push.
    """
    holds = {
        view.state.runner.instance: view.branch
        for view in views.values()
        if view.state and view.current_state.is_taken
    }

    def busy_with(record: Presence) -> str | None:
        if record.instance in holds or record.busy_with in views:
            return holds.get(record.instance)
        return record.busy_with

    return [
        replace(sighting, record=sighting.record.model_copy(update={"busy_with": busy_with(sighting.record)}))
        for sighting in runners
    ]
