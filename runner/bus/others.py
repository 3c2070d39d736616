"""The other runners of this bus. This runner leaves requests that it cannot run to them; only the last one refuses.

A runner that cannot run a request leaves it alone while another runner's presence record says that the other may run
it. If its own record says that it runs the preset, it notes on the branch that it leaves the request. So if no runner
can run the request, the last one knows from these notes that no other is left.
"""

import shutil
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.errors import InfrastructureError
from bridge.manifest import Request
from bridge.presets import Preset
from bridge.requests.runners import read_runners
from bridge.requests.sighting import Availability, RunnerSighting
from bridge.system import git_output
from bridge.verify.public_keys import PublicKey
from runner import policy
from runner.bus.store import open_store, token_of

_LOOK_S = 2.0
_REASON_CHARS = 400
_STORE = "presences.git"
# A larger store of records is created again: anyone who can push can replace records again and again.
_STORE_KIB = 256 << 10


class OtherRunners:
    """The live runners except this one, ``instance``. If there are keys, only records signed with one of them count."""

    def __init__(
        self, settings: policy.Bus, state_folder: Path, keys: Sequence[PublicKey], instance: str
    ) -> None:
        self._settings = settings
        self._folder = state_folder / _STORE
        self._keys = keys
        self._instance = instance
        self._seen: Sequence[RunnerSighting] = ()
        self._looked: float | None = None
        self._since: dict[str, tuple[str, float]] = {}

    def eligible_runners(
        self, branch: RequestBranch, request: Request, preset: Preset | None, definition: str | None = None
    ) -> list[str]:
        """Return the names of other runners that may run a request, the most recently announced first.

        ``preset`` is the preset as it is installed here. A runner whose definition of the preset has the
        digest ``definition`` does not count.
        """
        wanted = {*(request.labels or ()), *(preset.labels if preset else ())}
        passed = wire.declined_by(branch.state)
        now, names = time.time(), []
        for sighting in self._look():
            record = sighting.record
            listed = record.presets is None or record.presets.get(request.preset) not in (None, definition)
            if (
                record.instance == self._instance
                or record.instance in passed
                or not sighting.may_come_back(now)
            ):
                continue
            if listed and wanted <= set(record.labels) and record.serves(branch.name):
                names.append(record.id)
        return names

    def count_busy(self) -> int:
        """Return how many other runners say that they run a job. If the bus does not answer, none is known."""
        try:
            sightings = self._look()
        except (InfrastructureError, OSError):
            return 0
        now = time.time()
        return sum(
            sighting.record.instance != self._instance and sighting.availability(now) is Availability.BUSY
            for sighting in sightings
        )

    def has_declined(self, branch: RequestBranch) -> bool:
        """Return whether this runner has recorded on a request's branch that it leaves the request."""
        return self._instance in wire.declined_by(branch.state)

    def note(self, branch: RequestBranch, reason: str, name: str) -> str:
        """Return the note that this runner, ``name``, leaves a request to others, with the reason."""
        passed = " ".join([*wire.declined_by(branch.state), self._instance][-wire.MOST_LEFT :])
        return f"{name} cannot run it: {reason[:_REASON_CHARS].rstrip('.')}; {wire.LEFT_BY} {passed}"

    def _look(self) -> Sequence[RunnerSighting]:
        """Return the records, read a moment ago. If the bus does not answer, the records of the last time count."""
        if self._looked is None or time.monotonic() - self._looked >= _LOOK_S:
            try:
                self._seen = self._read()
            except InfrastructureError:
                # Perhaps the store failed, not the bus: open it again.
                self.__dict__.pop("_remote", None)
                try:
                    self._seen = self._read()
                except InfrastructureError:
                    if self._looked is None:
                        raise
            self._looked = time.monotonic()
        return self._seen

    def _read(self) -> list[RunnerSighting]:
        listed = self._remote.fetch_presences()
        now, known = time.monotonic(), self._since
        self._since = {
            ref: since if (since := known.get(ref)) and since[0] == oid else (oid, now)
            for ref, oid in listed.items()
        }
        git = self._remote.git
        sightings = read_runners(git, listed, self._keys, lambda ref, _: now - self._since[ref][1])
        if git_output.counts(git("count-objects", "-v").stdout)["size"] > _STORE_KIB:
            del self._remote
        return sightings

    @cached_property
    def _remote(self) -> Remote:
        # Remove the records that an earlier process fetched: records are replaced every few minutes.
        shutil.rmtree(self._folder, ignore_errors=True)
        return Remote(open_store(self._settings, self._folder, token_of(self._settings)), self._settings.url)
