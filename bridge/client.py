"""The client: everything the `kakeya` command does, for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from bridge import limits
from bridge.bus import branch_names, history, objects, times, wire
from bridge.bus.branch_names import Namespace
from bridge.bus.history import View
from bridge.bus.remote import Pushed, Remote
from bridge.bus.wire import CancelFile, Result
from bridge.errors import InfrastructureError, KakeyaError, UsageError
from bridge.manifest import format_time
from bridge.presets import Preset, find_preset, load_presets
from bridge.requests import request_commit
from bridge.requests.binding import Binding, repository_name
from bridge.requests.follow import follow
from bridge.requests.liveness import last_line, life_of, queue_of
from bridge.requests.outbox import Sent, asked_at, by_age
from bridge.requests.sightings import Sightings
from bridge.requests.status import Event, Status, events, mark_unsigned, status_of
from bridge.system import environment, github
from bridge.system.git import open_repository
from bridge.verify.answer_files import Contents
from bridge.verify.check import Report, read_result, verify
from bridge.verify.export import Answer, Fetched, read_answer, write_answer
from bridge.verify.pins import Pin, find_pin


@dataclass(frozen=True)
class Run:
    """One request, sent. The verbs are the client's own."""

    client: Client = field(repr=False)
    branch: str
    commit: str | None = None

    def status(self) -> Status:
        """Return where it stands now."""
        return self.client.status(self.branch)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait for the answer and return where it then stands."""
        return self.client.wait(self.branch, timeout)

    def follow(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield states and pieces of log until the answer is there."""
        return self.client.follow(self.branch, timeout)

    def logs(self) -> str:
        """Return the log as far as it is known."""
        return self.client.logs(self.branch)

    def fetch(self, out: Path | str | None = None) -> Fetched:
        """Write the answer's files into a folder, once they are verified."""
        return self.client.fetch(self.branch, out)

    def verify(self) -> Report:
        """Check the answer offline."""
        return self.client.verify(self.branch)

    def cancel(self, reason: str = "") -> Status:
        """Ask the runner to stop."""
        return self.client.cancel(self.branch, reason)


@dataclass(frozen=True)
class Swept:
    """What `gc` forgot, and how many requests stayed for which reason."""

    gone: list[str]
    young: int
    unanswered: int
    # Finished and old, and left on the remote since that was not asked for.
    only_remote: int

    def why_the_others_stay(self, older_than: str) -> Iterator[str]:
        """Yield a sentence for each reason."""
        if self.young:
            yield f"{self.young} are younger than {older_than}: --older-than DUR takes younger ones too"
        if self.unanswered:
            yield f"{self.unanswered} have no answer yet, and stay on the remote until they have"
        if self.only_remote:
            yield f"{self.only_remote} finished ones stay on the remote: --remote-branches deletes them there"


class Client:
    """A user's repository and the remote in it that is the bus."""

    def __init__(
        self,
        repo: Path | str = ".",
        remote: str = "origin",
        *,
        prefix: str | None = None,
        suffix: str | None = None,
        presets: Path | str | None = None,
        public_key: Path | str | None = None,
    ) -> None:
        self.git = open_repository(repo)
        self._remote_name = remote
        self._prefix = prefix if prefix is not None else environment.get("KAKEYA_BRANCH_PREFIX")
        self._suffix = suffix if suffix is not None else environment.get("KAKEYA_BRANCH_SUFFIX")
        self._public_key = public_key
        self._preset_folder = presets or environment.get("KAKEYA_PRESETS")

    @cached_property
    def remote(self) -> Remote:
        """The remote that is the bus."""
        return Remote.of(self.git, self._remote_name)

    @property
    def sent(self) -> Sent:
        """The notes on what was sent from here."""
        return Sent(self.git)

    @cached_property
    def sightings(self) -> Sightings:
        """The notes on since when branches are as they are."""
        return Sightings(self.git)

    @cached_property
    def presets(self) -> dict[str, Preset]:
        """The presets installed here. The runner judges by its own."""
        return load_presets(self._preset_folder)

    @property
    def pin(self) -> Pin | None:
        """The runner's public keys that are trusted here, if any are."""
        return find_pin(self.git, self._remote_name, self._public_key)

    @property
    def namespace(self) -> Namespace:
        """Where this client may push requests."""
        return branch_names.detect_namespace(
            request_commit.current_branch(self.git), prefix=self._prefix, suffix=self._suffix
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The branches among which requests are looked for."""
        own = f"{self.namespace.prefix}*"
        return (
            branch_names.DEFAULT_PATTERNS
            if branch_names.matches(own, branch_names.DEFAULT_PATTERNS)
            else (own, *branch_names.DEFAULT_PATTERNS)
        )

    def run(
        self,
        preset: str,
        params: Mapping[str, object] | None = None,
        *,
        ref: str = "HEAD",
        snapshot: bool = False,
        lifetime: timedelta = request_commit.DEFAULT_LIFETIME,
        labels: Sequence[str] = (),
        requested_by: str | None = None,
        sign: bool = False,
    ) -> Run:
        """Ask for a preset by pushing a request branch. With `sign` its commit is signed with the user's SSH key.

        Raises UsageError (nothing was sent) for an unknown preset or a bad parameter, RefusedError where the
        remote refuses the branch, InfrastructureError where it cannot be reached.
        """
        known = find_preset(self.presets, preset)
        values = known.check_params(params or {})

        def bind(branch: str) -> Binding:
            return Binding(branch, repository_name(self.remote.url, self.git.directory), known.digest)

        prepared = request_commit.prepare(
            self.git,
            preset,
            values,
            code=known.code,
            namespace=self.namespace,
            ref=ref,
            snapshot=snapshot,
            lifetime=lifetime,
            labels=labels,
            requested_by=requested_by,
            bind=bind if sign else None,
        )
        if self.remote.push(prepared.branch, prepared.commit, expect=None) is Pushed.STALE:
            raise InfrastructureError(f"{prepared.branch} exists on the remote already", fix="Try again.")
        self.sent.add(prepared.branch, prepared.commit)
        return Run(self, prepared.branch, prepared.commit)

    def find(self, name: str | None = None) -> Run:
        """Return a request by its branch, its nonce or a part of either; by default the last one sent from here.

        Raises UsageError where none or several fit.
        """
        if name is not None and branch_names.parse_branch(name):
            return Run(self, name)
        sent = self.sent.branches()
        if name is None:
            if not sent:
                raise UsageError(
                    "no request was sent from this repository", fix="Send one: kakeya run noop --wait"
                )
            return Run(self, sent[-1])
        fitting = [branch for branch in sent if name in branch]
        fitting = fitting or [branch for branch in self.remote.listed(*self.patterns) if name in branch]
        if len(fitting) == 1:
            return Run(self, fitting[0])
        if fitting:
            some = ", ".join(sorted(fitting)[:3])
            raise UsageError(
                f"{len(fitting)} requests fit {name!r}: {some} ...", fix="Give more of the name."
            )
        raise UsageError(f"no request fits {name!r}", fix="`kakeya list` shows the requests on the remote.")

    def view(self, branch: str) -> View:
        """Fetch one branch and read it. Raises UsageError where it does not exist."""
        tip = self.remote.fetch(branch).get(branch)
        if tip is None:
            fix = (
                "It may have been collected after its end, or never sent. `kakeya list` shows what is there."
            )
            raise UsageError(
                f"there is no request {branch} on {self._remote_name}", fix=fix, code="no_such_request"
            )
        return history.read_view(self.git, branch, tip)

    def _answered(self, branch: str) -> View:
        """Fetch one branch that has its answer. Raises InfrastructureError where it has none yet."""
        return _final(self.view(branch))

    def _known(self, branch: str) -> View:
        """Read one branch as it was last fetched; it is fetched where it was not, or where more may have come."""
        tip = self.remote.known(branch).get(branch)
        view = history.read_view(self.git, branch, tip) if tip else self.view(branch)
        return view if view.stands.is_final and not view.foreign else self.view(branch)

    def status(self, branch: str) -> Status:
        """Return where a request stands now, who works on it, and what GitHub Actions says where it can be asked."""
        actions = github.actions_run(self.remote.url, branch)
        (status,) = mark_unsigned(self.git, self.pin, [self._about(self.view(branch))])
        return replace(status, actions=actions)

    def _about(self, view: View) -> Status:
        """Return all that is known of a request without an answer: its runner's last sign of life, or its place."""
        status = status_of(view)
        if view.stands.is_taken:
            life = life_of(view, self.sightings.unchanged_s(view.branch, view.tip))
            return replace(status, life=life, last_line=last_line(self.git, view))
        if status.waits_for != "runner" or view.cancel:
            return status
        # What else lies on the bus is worth a word, and no failure of its own.
        with suppress(KakeyaError):
            return replace(
                status, queue=queue_of(self.git, self.remote.fetch(*self.patterns), view, self.presets)
            )
        return status

    def follow(self, branch: str, timeout: float | None = None) -> Iterator[Event]:
        """Yield a request's states and pieces of log as they come, from the first, until it has ended.

        Raises WaitTimeout after `timeout` seconds without an end.
        """
        return follow(self.git, self.remote.url, lambda: self._seen(branch), timeout, self._about)

    def _seen(self, branch: str) -> View:
        """Fetch one branch, and note since when it is as it is if a runner holds it."""
        view = self.view(branch)
        if view.stands.is_taken:
            self.sightings.see(branch, view.tip)
        return view

    def wait(self, branch: str, timeout: float | None = None) -> Status:
        """Wait for the answer. Raises WaitTimeout where it does not come in `timeout` seconds."""
        last = None
        for event in self.follow(branch, timeout):
            last = event.status
        assert last is not None  # noqa: S101 - follow yields at least once before it returns
        return mark_unsigned(self.git, self.pin, [last])[0]

    def logs(self, branch: str) -> str:
        """Return a request's log: the kept one where it has ended, else what was streamed so far."""
        view = self.view(branch)
        if not view.stands.is_final:
            return "".join(_bounded(event.log for event in events(self.git, view, None)))
        result = read_result(self.git, view)
        paths = [log.path for log in result.logs]
        contents = Contents.of(self.git, view.tip, result)
        if sum(contents.files[path].size for path in paths if path in contents.files) > limits.LOG_BYTES:
            message = f"the log is larger than {limits.LOG_BYTES >> 20} MiB"
            raise UsageError(message, fix=f"Write it to disk: kakeya fetch {branch}", code="too_large")
        read = contents.read(paths, limits.LOG_BYTES)
        return b"".join(read.get(path, b"") for path in paths).decode("utf-8", "replace")

    def result(self, branch: str) -> Result:
        """Return a finished request's result. Raises VerificationError where it has none."""
        return read_result(self.git, self._answered(branch))

    def verify(self, branch: str) -> Report:
        """Check an answer offline: only what was fetched is read, if it was fetched before."""
        return self._verify(self._known(branch))

    def fetch(self, branch: str, out: Path | str | None = None) -> Fetched:
        """Write the answer's files into a folder (by default `kakeya-results/<preset>-<nonce>`).

        Raises VerificationError, and writes nothing, where the answer does not hold together.
        """
        view = self._answered(branch)
        return write_answer(self.git, view, self._verify(view), out)

    def answer(self, branch: str) -> Answer:
        """Return the answer's files and what was found out about it, whether it holds or not. Offline as `verify` is.

        Raises InfrastructureError where there is no answer yet.
        """
        view = _final(self._known(branch))
        return read_answer(self.git, view, self._verify(view))

    def cancel(self, branch: str, reason: str = "") -> Status:
        """Ask for a stop, by a commit on the request branch. Returns where the request stands then."""
        for _ in range(20):
            view = self.view(branch)
            if view.stands.is_final or view.cancel:
                return status_of(view)
            who = request_commit.identity(self.git)
            note = CancelFile(
                schema_version=2,
                branch=branch,
                request=view.request,
                by=who.email[:200],
                at=format_time(datetime.now(UTC)),
                reason=reason[:500],
            )
            tree = objects.overlay(self.git, f"{view.tip}^{{tree}}", {wire.CANCEL: note.to_bytes()})
            commit = objects.commit(self.git, tree, [view.tip], f"Cancel {branch}\n\n[skip ci]\n", who)
            if self.remote.push(branch, commit, expect=view.tip) is Pushed.DONE:
                return status_of(history.read_view(self.git, branch, commit))
        raise InfrastructureError(f"{branch} changed faster than it could be cancelled", fix="Try again.")

    def gc(self, older_than: timedelta, *, remote: bool = False, dry_run: bool = False) -> list[str]:
        """Forget requests as `sweep` does, and return the branches concerned."""
        return self.sweep(older_than, remote=remote, dry_run=dry_run).gone

    def sweep(self, older_than: timedelta, *, remote: bool = False, dry_run: bool = False) -> Swept:
        """Forget requests that are older and, with `remote`, delete the finished ones among them from the remote.

        A request that has no answer yet is never deleted from the remote.
        """
        listed = self.remote.listed(*self.patterns)
        # Not by this machine's clock alone: no more time has passed than the newest request shows.
        asked = [float(at) for branch in listed if (at := asked_at(branch)) > 0]
        before = times.at_least(datetime.now(UTC).timestamp(), asked) - older_than.total_seconds()
        old = {branch: tip for branch, tip in listed.items() if 0 < asked_at(branch) < before}
        old = self.remote.fetch_listed(old)
        views = history.read_views(self.git, old)
        finished = [branch for branch, view in views.items() if view.stands.is_final]
        sent = self.sent.branches()
        mine = [branch for branch in sent if asked_at(branch) < before]
        if not dry_run:
            for branch in mine:
                self.sent.forget(branch)
            for branch in finished if remote else ():
                self.remote.delete(branch, expect=old[branch])
        young = {branch for branch in (*sent, *(listed if remote else ())) if asked_at(branch) >= before}
        return Swept(
            gone=sorted({*mine, *(finished if remote else ())}),
            young=len(young),
            unanswered=len(views) - len(finished) if remote else 0,
            only_remote=0 if remote else len(finished),
        )

    def _verify(self, view: View) -> Report:
        return verify(self.git, view, self.presets, self.pin, self.sent.commit_of(view.branch))

    # Last, since its name hides Python's own from what follows it.
    def list(self, limit: int = 50) -> list[Status]:
        """Return the newest requests on the remote, newest first."""
        listed = self.remote.listed(*self.patterns)
        chosen = sorted((branch for branch in listed if asked_at(branch)), key=by_age, reverse=True)[:limit]
        tips = self.remote.fetch_listed({branch: listed[branch] for branch in chosen})
        views = history.read_views(self.git, tips)
        shown = [status_of(views[branch]) for branch in chosen if branch in views]
        return mark_unsigned(self.git, self.pin, shown)


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    left = limits.LOG_BYTES
    for piece in pieces:
        left -= len(piece)
        yield piece if left >= 0 else ""


def _final(view: View) -> View:
    if view.stands.is_final:
        return view
    message = f"{view.branch} has no answer yet: it is {view.stands}"
    raise InfrastructureError(message, fix=f"Wait for it: kakeya wait {view.branch}", code="no_answer_yet")
