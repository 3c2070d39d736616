"""Polls the bus, and keeps the latest snapshot for all pages.

It fetches requests into its own private references, so it does not conflict with other commands that fetch in the same
clone at the same time.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bridge.bus import history, objects, wire
from bridge.bus.branch_names import age_sort_key, requested_at
from bridge.bus.history import RequestBranch
from bridge.client import Client
from bridge.common import limits
from bridge.common.advice import Door, printed
from bridge.common.drawing.text import cut
from bridge.errors import KakeyaError, ManifestError, as_kakeya_error
from bridge.manifest import parse_manifest
from bridge.presets import Presets
from bridge.presets.announced import Offers
from bridge.requests import why_waiting
from bridge.requests.liveness import last_line, liveness_of
from bridge.requests.runners import read_offers, read_runners, with_jobs
from bridge.requests.sighting import RunnerSighting
from bridge.requests.status import mark_unsigned, status_of
from bridge.system.deadline import within
from bridge.system.git import Git
from bridge.web.snapshot import Row, Snapshot

PRIVATE = "refs/kakeya-web/"
# The same for a bus that has a place of its own.
_PLACES = "refs/kakeya-web-bus/"

# How often presets are read again.
PRESETS_S = 60.0
# How many branches are read at once, to bound the memory.
_AT_ONCE = 500
# The last line of output is shown for at most this many running jobs, the oldest ones.
_LINES = 50
# A larger manifest is shown on the request's own page only.
_MOST_BYTES = 64 * limits.KIB
# Each row keeps at most this many characters of its parameters.
_PARAMS = 500


class Watch:
    """Polls one bus. One thread calls ``look``; any thread may read ``snapshot``."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.git = replace(client.git, own_session=True)
        # The clone's settings are read once. After pinning another key, restart the server.
        self.pin = client.pin
        self.presets = client.presets
        self._presets_at = time.monotonic()
        self._offers: tuple[object, Offers] = None, Offers()
        self.patterns = client.patterns
        self.snapshot = Snapshot(presets=self.presets)
        own = replace(client.remote.git, own_session=True)
        private = f"{_PLACES}{client.place}/" if client.place else PRIVATE
        self._remote = replace(client.remote, git=own, private=private)
        self.address = self._remote.url
        self._rows: dict[str, Row] = {}
        self._since: dict[str, tuple[str, float]] = {}
        self._lines: dict[str, tuple[str, str]] = {}
        # How long a poll may take; None: as long as git does.
        self.limit_s: float | None = None

    def refresh(self) -> Snapshot:
        """Poll once: fetch the bus, read what changed, and return the snapshot, with the error if the fetch failed."""
        with within(self.limit_s):
            return self._refresh()

    def _refresh(self) -> Snapshot:
        try:
            tips = self._newest(self._remote.fetch(*self.patterns))
            unforwarded = self.client.unforwarded(tips)
            self._rows = {b: row for b, row in self._rows.items() if b in tips}
            self._read(
                {
                    b: tip
                    for b, tip in tips.items()
                    if b not in self._rows or self._rows[b].request_branch.tip != tip
                }
            )
            branches = {branch: row.request_branch for branch, row in self._rows.items()}
            refs, sightings = self._runners()
            runners = tuple(with_jobs(sightings, branches))
            presets = self._offered(refs, runners)
            every = [*self._dressed(branches, runners), *self._unforwarded_rows(unforwarded)]
            rows = sorted(every, key=lambda row: age_sort_key(row.branch), reverse=True)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not look like a bus on which nothing happens
            fault = as_kakeya_error(error)
            fix = printed(fault.fix, Door.WEB) or ""
            return self._publish(replace(self.snapshot, problem=fault.message, fix=fix))
        return self._publish(
            replace(
                self.snapshot,
                rows=tuple(rows),
                runners=runners,
                presets=presets,
                at=time.time(),
                problem="",
                fix="",
            )
        )

    def run(self, stop: threading.Event, poll_s: float) -> None:
        """Poll until ``stop`` is set. After a slow poll, pause for as long as the poll took."""
        while True:
            began = time.monotonic()
            self.refresh()
            if stop.wait(max(poll_s, time.monotonic() - began)):
                return

    def _newest(self, tips: Mapping[str, str]) -> dict[str, str]:
        """Return the branches that are requests; only the newest ones if there are more than the limit for readers."""
        branches = [branch for branch in tips if requested_at(branch)]
        return {branch: tips[branch] for branch in sorted(branches, key=age_sort_key)[-limits.BRANCHES :]}

    def _read(self, tips: Mapping[str, str]) -> None:
        names = list(tips)
        for i in range(0, len(names), _AT_ONCE):
            some = {name: tips[name] for name in names[i : i + _AT_ONCE]}
            branches = history.read_branches(self.git, some)
            states = mark_unsigned(
                self.git, self.pin, [status_of(branch, self.git) for branch in branches.values()], branches
            )
            contents = _contents(self.git, branches)
            self._rows |= {
                s.branch: Row(s, branches[s.branch], requested_at(s.branch), *contents[s.branch])
                for s in states
            }

    def _runners(self) -> tuple[Mapping[str, str] | None, list[RunnerSighting]]:
        """Return the runners of the bus with their references.

        If their records cannot be fetched now, the runners of the last poll are returned, without references.
        """
        try:
            refs = self._remote.fetch_presences()
        except KakeyaError:
            return None, list(self.snapshot.runners)
        return refs, read_runners(self.git, refs, self.pin.keys if self.pin else (), self._unchanged_s)

    def _offered(self, refs: Mapping[str, str] | None, runners: Sequence[RunnerSighting]) -> Presets:
        """Return the presets that can be requested. Files and the bus's folder are read once a minute."""
        if time.monotonic() - self._presets_at >= PRESETS_S:
            self._presets_at = time.monotonic()
            with suppress(KakeyaError):
                self.presets = self.client.read_presets(self.git)
        if refs is not None:
            now = time.time()
            alive = [sighting for sighting in runners if sighting.is_alive(now)]
            key = [(each.record.ref, refs.get(each.record.ref)) for each in alive]
            if key != self._offers[0]:
                self._offers = key, read_offers(self.git, refs, alive)
        return self._offers[1].add_to(self.presets)

    def _unchanged_s(self, name: str, tip: str) -> float:
        """Return for how many seconds this server has seen a reference at a commit."""
        known = self._since.get(name)
        if known is None or known[0] != tip:
            known = self._since[name] = (tip, time.monotonic())
        return time.monotonic() - known[1]

    def _dressed(self, branches: Mapping[str, RequestBranch], runners: Sequence[RunnerSighting]) -> list[Row]:
        """Return all rows. Rows of unanswered requests include their current status."""
        reasons = why_waiting.reasons(self.git, branches, runners, self.presets, self.patterns, time.time())
        running = sorted((row.branch for row in self._rows.values() if row.state.is_taken), key=age_sort_key)
        refs = {sighting.record.ref for sighting in runners}
        for name in self._since.keys() - refs - set(running):
            del self._since[name]
            self._lines.pop(name, None)
        lines = {branch: self._last_line(branch) for branch in running[:_LINES]}

        def dressed(row: Row) -> Row:
            if row.state.is_final:
                return row
            if not row.state.is_taken:
                return replace(row, status=replace(row.status, reason=reasons.get(row.branch)))
            life = liveness_of(row.request_branch, self._unchanged_s(row.branch, row.request_branch.tip))
            return replace(row, status=replace(row.status, life=life, last_line=lines.get(row.branch, "")))

        return [*map(dressed, self._rows.values())]

    def _unforwarded_rows(self, branches: Mapping[str, RequestBranch]) -> list[Row]:
        """Return the rows of requests that wait on a session's branch for a runner to forward them."""
        contents = _contents(self.git, branches)
        return [
            Row(
                replace(status_of(branch, self.git), reason=self.client.why_unforwarded(branch)),
                branch, requested_at(name), *contents[name],
            )
            for name, branch in branches.items()
        ]  # fmt: skip

    def _last_line(self, branch: str) -> str:
        tip = self._rows[branch].request_branch.tip
        known = self._lines.get(branch)
        if known is None or known[0] != tip:
            known = self._lines[branch] = (tip, last_line(self.git, self._rows[branch].request_branch))
        return known[1]

    def _publish(self, snapshot: Snapshot) -> Snapshot:
        """Make a snapshot the current one, and update its version if it differs."""
        last = self.snapshot
        version = last.version + 1
        known = last.by_branch
        changed = {
            row.branch: last.changed.get(row.branch, 0) if _same(known.get(row.branch), row) else version
            for row in snapshot.rows
        }
        is_same = changed == last.changed and _shown(snapshot) == _shown(last)
        self.snapshot = replace(snapshot, version=last.version if is_same else version, changed=changed)
        return self.snapshot


def _shown(snapshot: Snapshot) -> object:
    """Return the parts of a snapshot besides the requests."""
    now, presets = time.time(), snapshot.presets
    broken = {name: error.message for name, error in presets.broken.items()}
    listed = dict(presets), broken, presets.sources, presets.notes, presets.offers
    return (
        snapshot.problem,
        listed,
        [(sighting.record, sighting.availability(now)) for sighting in snapshot.runners],
    )


def _same(before: Row | None, now: Row) -> bool:
    """Return whether two rows look the same. A runner's growing silence counts only once its lease has expired."""
    if before is None or before is now:
        return before is now
    lapsed = [bool(row.status.life and row.status.life.lapsed) for row in (before, now)]
    plain = [replace(row, status=replace(row.status, life=None)) for row in (before, now)]
    return lapsed[0] == lapsed[1] and plain[0] == plain[1]


def _contents(git: Git, branches: Mapping[str, RequestBranch]) -> dict[str, tuple[str, str]]:
    """Return requester and parameters of each request, unchecked; empty texts if they cannot be read."""
    names = [f"{branch.request}:{wire.REQUEST}" for branch in branches.values()]
    manifests = objects.read_many(git, names, max_bytes=_MOST_BYTES)
    return {name: _requester_and_params(each) for name, each in zip(branches, manifests, strict=True)}


def _requester_and_params(manifest: bytes | None) -> tuple[str, str]:
    try:
        request = parse_manifest(manifest or b"")
    except ManifestError:
        return "", ""
    params = " ".join(f"{name}={value}" for name, value in sorted(request.params.items()))
    return request.requested_by, cut(params, _PARAMS)
