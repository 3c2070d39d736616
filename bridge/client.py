"""The client: everything the ``kakeya`` command does, for programs."""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus import branch_names, history, wire
from bridge.bus.branch_names import Namespace, age_sort_key, requested_at
from bridge.bus.history import RequestBranch
from bridge.bus.remote import Remote
from bridge.bus.wire import Result, State
from bridge.common import environment
from bridge.common.advice import step
from bridge.errors import InfrastructureError, KakeyaError, UsageError, VerificationError
from bridge.presets import Preset, Presets, find_preset, find_presets
from bridge.presets.announced import Offers
from bridge.requests import request_commit, why_waiting
from bridge.requests.answered.sweep import Swept, sweep
from bridge.requests.follow import follow
from bridge.requests.groups.names import members
from bridge.requests.liveness import BranchAges, is_expired, last_line, liveness_of, queue_of
from bridge.requests.on_branch.carry import Carriers, not_forwarded
from bridge.requests.outbox import Sent, find_branch, no_such_request, require_answer
from bridge.requests.runners import read_offers, read_runners, with_jobs
from bridge.requests.send import cancel, send
from bridge.requests.sighting import RunnerSighting
from bridge.requests.status import REWRITTEN, Event, Status, kept_log, mark_unsigned, status_of, streamed_log
from bridge.requests.waiting import Reason
from bridge.system.git import Git, open_repository
from bridge.verify.answer_files import read_result
from bridge.verify.public_keys import Pin, find_pin
from bridge.verify.signed_history import Reader

if TYPE_CHECKING:
    from bridge.reports.compared import Compared
    from bridge.requests.answered.reuse import Reused
    from bridge.verify.check import Report
    from bridge.verify.export import Fetched

# How many of the newest requests are read to explain why one of them waits.
_QUEUE = 200
# How long a list verifies answers. The answers that are left are shown as not verified.
LIST_VERIFY_S = 3.0
# How many branches are cached as they were read: those of a whole sweep.
_MOST_READS = 128


@dataclass(frozen=True)
class Run:
    """A request that was sent. Its methods call those of the client."""

    client: "Client" = field(repr=False)
    branch: str
    commit: str | None = None
    # Whether an earlier call with the same idempotency key had sent the request.
    existing: bool = False
    # The branch of the session on which the request was sent, for a runner to forward.
    session: str | None = None
    # The label of its bus, if there are several.
    bus: str | None = None

    def status(self) -> Status:
        """Return the request's current status."""
        return self.client.status(self.branch)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait for the answer and return the status after that."""
        return self.client.wait(self.branch, timeout)

    def follow(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield states and pieces of log until the answer is there."""
        return self.client.follow(self.branch, timeout)

    def logs(self) -> str:
        """Return the whole log once the job has ended, and until then the part that was streamed so far."""
        return self.client.logs(self.branch)

    def fetch(self, out: Path | str | None = None) -> "Fetched":
        """Verify the answer and write its files into a folder."""
        return self.client.fetch(self.branch, out)

    def verify(self) -> "Report":
        """Check the answer."""
        return self.client.verify(self.branch)

    def cancel(self, reason: str = "") -> Status:
        """Ask the runner to stop."""
        return self.client.cancel(self.branch, reason)


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
        public_key: Path | str | Pin | None = None,
        place: str | None = None,
    ) -> None:
        """Open the repository. ``place`` is given if this bus is one of several: see ``bridge.buses``."""
        self.git = open_repository(repo)
        self._remote_name = remote
        self._prefix = prefix if prefix is not None else environment.get("KAKEYA_BRANCH_PREFIX")
        self._suffix = suffix if suffix is not None else environment.get("KAKEYA_BRANCH_SUFFIX")
        self._public_key = public_key
        self._place = place
        # The last branches are cached: a followed branch rarely moves between two polls.
        self._last_reads: dict[str, RequestBranch] = {}
        self._preset_folder = presets

    @cached_property
    def remote(self) -> Remote:
        """The remote that is the bus."""
        return Remote.of(self.git, self._remote_name, self.place)

    @property
    def place(self) -> str:
        """Where this clone keeps its records of this bus; empty for the usual place."""
        return self._place or ""

    @property
    def sent(self) -> Sent:
        """The record of the requests sent from here."""
        return Sent(self.git, self._place)

    @property
    def carriers(self) -> Carriers:
        """The record of the requests that were sent on a branch of the user's own."""
        return Carriers(self.git)

    @cached_property
    def branch_ages(self) -> BranchAges:
        """The record of how long each branch has been unchanged."""
        return BranchAges(self.git, self.place)

    @cached_property
    def presets(self) -> Presets:
        """The presets of this repository, of the bus's default branch, and the built-in ones.

        The runner decides by its own copy.
        """
        return self.read_presets(self.git)

    def read_presets(self, git: Git) -> Presets:
        """Read these presets anew, with the given settings of git."""
        return find_presets(git, self._remote_name, self._preset_folder)

    def all_presets(self) -> Presets:
        """Return the presets here and those that runners on the bus announce, with the runners that offer each.

        If the runners' records cannot be read, the last ones that were fetched count.
        """
        return self._offers().add_to(self.presets)

    def preset(self, name: str) -> Preset:
        """Return a preset by its name. The runners' announcements are read only for a name that is not known here.

        Raises:
            PresetError: there is none, or its file cannot be used.
        """
        is_known = name in self.presets or name in self.presets.broken
        return find_preset(self.presets if is_known else self.all_presets(), name)

    def _offers(self) -> Offers:
        problem = ""
        try:
            remote = self.remote
        except UsageError:
            # There is no bus, so nothing is missing.
            return Offers()
        try:
            pin = self.pin
            keys = pin.keys if pin else ()
        except KakeyaError as error:
            return Offers(problem=f"no runner is listed: {error.message}")
        try:
            refs = remote.fetch_presences()
        except KakeyaError as error:
            refs = remote.fetched_presences()
            problem = f"the runners are those that were last seen: {error.message}"
        now = time.time()
        try:
            runners = read_runners(self.git, refs, keys, self.branch_ages.unchanged_s)
            offers = read_offers(self.git, refs, [each for each in runners if each.is_alive(now)])
        except KakeyaError as error:
            return Offers(problem=f"no runner is listed: {error.message}")
        return replace(offers, problem=problem)

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
        """The patterns of the branches that may be requests."""
        return branch_names.lookup_patterns(self.namespace)

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
        idempotency_key: str | None = None,
        against: str | None = None,
        on_branch: str | None = None,
    ) -> Run:
        """Request a preset by pushing a request branch. With ``sign``, its commit is signed with the user's SSH key.

        With ``against``, the job runs the tree of that commit too, in turn, and compares the two.
        A second call with the same ``idempotency_key`` returns the request of the first one and sends nothing.
        With ``on_branch`` (empty: the branch that is checked out), the request goes onto a branch of the user's own,
        from where a runner forwards it: for those who may push to no other one.

        Raises:
            UsageError: the preset is unknown, or a parameter does not fit. Nothing was sent.
            RefusedError: the remote refuses the branch.
            InfrastructureError: the remote cannot be reached.
        """
        # Fail now if the named key cannot be read, not after the job ran.
        find_pin(None, self._remote_name, self._public_key)
        namespace = self.namespace
        known = self.preset(preset)
        values = known.check_params(params or {})
        draft = request_commit.Draft(known, values, ref, snapshot, lifetime, labels, requested_by, against)
        delivery = send(
            self.git, self.remote, self.sent, draft, namespace=namespace, sign=sign, idempotency_key=idempotency_key,
            patterns=branch_names.lookup_patterns(namespace), on_branch=on_branch,
        )  # fmt: skip
        return Run(self, *delivery)

    def find_answer(
        self,
        preset: str,
        params: Mapping[str, object] | None = None,
        *,
        ref: str = "HEAD",
        snapshot: bool = False,
        against: str | None = None,
    ) -> "tuple[Run, Reused] | None":
        """Return the newest answer to the same question; None if there is none.

        Only an answer that a pinned key signed counts, of a runner that still serves, for the same definition of the
        preset, the same parameters and the same files.

        Raises:
            UsageError: the preset is unknown, or a parameter or commit does not fit.
            InfrastructureError: the remote cannot be reached.
        """
        known = self.preset(preset)
        values = known.check_params(params or {})
        draft = request_commit.Draft(
            known, values, ref, snapshot, request_commit.DEFAULT_LIFETIME, (), None, against
        )
        (known_answer,) = self.find_answers([draft])
        return (
            (Run(self, known_answer.branch, known_answer.request, True), known_answer)
            if known_answer
            else None
        )

    def find_answers(self, drafts: Sequence[request_commit.Draft]) -> "list[Reused | None]":
        """Return the newest answer to what each draft asks; the drafts differ by their parameters alone."""
        from bridge.requests.answered.reuse import find_answers  # noqa: PLC0415 - verifying is slow to import

        now = time.time()
        serving = {each.record.instance for each in self.runners() if each.is_alive(now)}
        return find_answers(self.git, self.remote, drafts, self.patterns, serving, self._verify)

    def find(self, name: str | None = None) -> Run:
        """Return a request by its branch, its nonce or a part of either; by default the last one sent from here.

        Raises:
            UsageError: none or several fit.
        """
        return Run(self, find_branch(name, self.sent, lambda: self.remote.list_branches(*self.patterns)))

    def view(self, branch: str) -> RequestBranch:
        """Fetch one branch and read it.

        Raises:
            UsageError: it does not exist.
        """
        return self._read(branch, self.remote.fetch(branch).get(branch))

    def views(self, names: Sequence[str]) -> "dict[str, RequestBranch | KakeyaError]":
        """Fetch branches together, and return each as it was read, or why it cannot be."""
        tips = self.remote.fetch_named(names) if len(names) > 1 else {}
        views: dict[str, RequestBranch | KakeyaError] = {}
        for name in names:
            # The error of a single fetch says why one could not be fetched with the others.
            is_alone = len(names) == 1 or name in self.remote.unfetched or name in self.remote.skipped
            try:
                views[name] = self.view(name) if is_alone else self._read(name, tips.get(name))
            except InfrastructureError:
                raise
            except KakeyaError as error:
                views[name] = error
        return views

    def _read(self, branch: str, tip: str | None) -> RequestBranch:
        """Read a fetched branch; if it is not on the remote (no ``tip``), the request that waits to be forwarded."""
        if tip is None:
            if self.carriers.is_unforwarded(branch) and (sent := self.sent.commit_of(branch)):
                return self.carriers.with_cancel(history.read_branch(self.git, branch, sent))
            raise no_such_request(branch, self.remote, self.sent.other_bus(branch, [self.remote.name]))
        known = self._last_reads.get(branch)
        if known is None or known.tip != tip:
            if len(self._last_reads) >= _MOST_READS:
                self._last_reads.clear()
            known = self._last_reads[branch] = history.read_branch(self.git, branch, tip)
            self.carriers.mark_forwarded(branch)
        return known

    def _known(self, branch: str) -> RequestBranch:
        """Read one branch as of the last fetch. A branch that was never fetched, or may have changed, is fetched."""
        tip = self.remote.fetched_branches(branch).get(branch)
        request_branch = history.read_branch(self.git, branch, tip) if tip else self.view(branch)
        return (
            request_branch
            if request_branch.current_state.is_final and not request_branch.has_foreign_commits
            else self.view(branch)
        )

    def status(self, branch: str) -> Status:
        """Return a request's status, with its runner's last sign of life or the reason why it waits."""
        request_branch = self.view(branch)
        (status,) = mark_unsigned(self.git, self.pin, [self._about(request_branch)])
        sent = self.sent.commit_of(branch)
        if sent and not history.is_ancestor(self.git, sent, request_branch.tip):
            status = replace(status, detail="; ".join(filter(None, (REWRITTEN, status.detail))))
        return status

    def _about(self, request_branch: RequestBranch) -> Status:
        status = status_of(request_branch, self.git)
        if request_branch.current_state.is_taken:
            life = liveness_of(
                request_branch, self.branch_ages.unchanged_s(request_branch.name, request_branch.tip)
            )
            return replace(status, life=life, last_line=last_line(self.git, request_branch))
        if status.waits_for == "approval":
            return replace(status, reason=why_waiting.needs_approval(request_branch))
        if status.waits_for == "runner" and self.carriers.is_unforwarded(request_branch.name):
            return replace(status, reason=self.why_unforwarded(request_branch))
        if status.waits_for == "runner" and not request_branch.cancel:
            # If the other branches cannot be read, the status is still shown.
            with suppress(KakeyaError):
                branches = history.read_branches(self.git, self.remote.fetch(*self.patterns)) | {
                    request_branch.name: request_branch
                }
                status = replace(status, queue=queue_of(branches, request_branch))
                return replace(status, reason=self._reasons(branches).get(request_branch.name))
        return status

    def _reasons(self, branches: Mapping[str, RequestBranch]) -> dict[str, Reason]:
        """Return why each untaken request waits; nothing if the runners' records cannot be read."""
        try:
            runners = with_jobs(self.runners(), branches)
        except KakeyaError:
            return {}
        return why_waiting.reasons(self.git, branches, runners, self.presets, self.patterns, time.time())

    def unforwarded(self, listed: Collection[str]) -> dict[str, RequestBranch]:
        """Return the requests on a session's branch that no runner has forwarded yet; ``listed`` are on the remote."""
        waiting: dict[str, RequestBranch] = {}
        for name in self.carriers.unforwarded():
            commit = self.sent.commit_of(name)
            if name in listed:
                self.carriers.mark_forwarded(name)
            elif commit and (self._place is None or self.sent.was_sent_here(name)):
                waiting[name] = self.carriers.with_cancel(history.read_branch(self.git, name, commit))
        return waiting

    def why_unforwarded(self, branch: RequestBranch) -> Reason:
        """Return why a request waits on a session's branch."""
        if is_expired(self.git, branch, time.time()):
            return why_waiting.expired(self.git, branch)
        carried = self.carriers.request(branch.name)
        return not_forwarded(carried.session if carried else "your branch")

    def runners(self, *, unsigned: bool = False) -> list[RunnerSighting]:
        """Fetch the records of the runners that announce themselves on the bus, and return them, newest first.

        If keys are pinned, only records that one of them signed, unless ``unsigned`` asks for all.

        Raises:
            InfrastructureError: the remote does not answer.
        """
        keys = self.pin.keys if self.pin and not unsigned else ()
        return read_runners(self.git, self.remote.fetch_presences(), keys, self.branch_ages.unchanged_s)

    def follow(self, branch: str, timeout: float | None = None) -> Iterator[Event]:
        """Yield a request's states and pieces of log as they arrive, from the first one, until the request has ended.

        Raises:
            WaitTimeout: it has not ended after ``timeout`` seconds.
        """
        for _, news in self.follow_all([branch], timeout):
            if isinstance(news, KakeyaError):
                raise news
            if news:
                yield news

    def follow_all(
        self, branches: Sequence[str], timeout: float | None = None
    ) -> "Iterator[tuple[str, Event | KakeyaError | None]]":
        """Yield the events of several requests, as ``bridge.requests.follow`` does, with one fetch for all.

        Raises:
            WaitTimeout: not all have ended after ``timeout`` seconds.
        """

        def look(names: Sequence[str]) -> "dict[str, RequestBranch | KakeyaError]":
            views = self.views(names)
            for view in views.values():
                if isinstance(view, RequestBranch) and view.current_state.is_taken:
                    self.branch_ages.see(view.name, view.tip)
            return views

        return follow(self.git, self.remote.url, look, branches, timeout, self._about, self.sent.commit_of)

    def wait(self, branch: str, timeout: float | None = None) -> Status:
        """Wait for the answer.

        Raises:
            WaitTimeout: it does not come in ``timeout`` seconds.
        """
        (last,) = deque(self.follow(branch, timeout), maxlen=1)
        return mark_unsigned(self.git, self.pin, [last.status])[0]

    def logs(self, branch: str) -> str:
        """Return a request's log: the answer's log if it has ended, otherwise the output streamed so far."""
        request_branch = self.view(branch)
        return (
            kept_log(self.git, request_branch)
            if request_branch.current_state.is_final
            else streamed_log(self.git, request_branch)
        )

    def result(self, branch: str) -> Result:
        """Return a finished request's result.

        Raises:
            VerificationError: it has none.
        """
        return read_result(self.git, require_answer(self.view(branch)))

    def verify(self, branch: str) -> "Report":
        """Check an answer. If its branch was fetched before, the local copy is read.

        Without a nearer pin, the remote is asked for the keys on its default branch.
        """
        return self._verify(self._known(branch))

    def fetch(self, branch: str, out: Path | str | None = None) -> "Fetched":
        """Write the answer's files into a folder (by default ``kakeya-results/<preset>-<nonce>``).

        Raises:
            VerificationError: the answer does not hold together. Nothing is written.
        """
        request_branch = require_answer(self.view(branch))
        from bridge.verify.export import write_answer  # noqa: PLC0415 - verifying is slow to import

        return write_answer(self.git, request_branch, self._verify(request_branch), out)

    def answer(self, branch: str) -> "tuple[Report, dict[str, bytes]]":
        """Return an answer's verification, and its files by path, valid or not. Offline, like ``verify``.

        Raises:
            InfrastructureError: there is no answer yet.
        """
        from bridge.verify.export import read_answer  # noqa: PLC0415 - verifying is slow to import

        request_branch = require_answer(self._known(branch))
        report = self._verify(request_branch)
        return report, read_answer(self.git, request_branch, report)

    def comparison(self, branch: str) -> "Compared | None":
        """Return the conclusion of a comparison of two trees; None if the runner compared nothing.

        Raises:
            VerificationError: the answer does not hold.
        """
        from bridge.reports.compared import read_comparison  # noqa: PLC0415 - most answers have none

        report, files = self.answer(branch)
        if not report.holds:
            raise VerificationError("the answer does not hold", fix=step("See", "verify", branch))
        data = files.get(wire.COMPARISON)
        return None if data is None else read_comparison(data)

    def cancel(self, branch: str, reason: str = "") -> Status:
        """Cancel a request with a commit on its branch. Returns its status after that."""
        return status_of(cancel(self.git, self.remote, lambda: self.view(branch), reason), self.git)

    def sweep(
        self, older_than: timedelta, *, remote: bool = False, everybody: bool = False, dry_run: bool = False
    ) -> Swept:
        """Remove the records of older requests and, with ``remote``, delete the finished ones from the remote.

        Only requests that were sent from here are deleted from the remote, unless ``everybody`` is set. One that a
        runner may still answer is never deleted.
        """
        if not dry_run:
            from bridge.requests.groups.plan import Plans  # noqa: PLC0415 - a request is sent without it

            Plans(self.git).remove_before(time.time() - older_than.total_seconds())
        return sweep(
            self.git, self.remote, self.sent, self.patterns, older_than, on_remote=remote, everybody=everybody,
            dry_run=dry_run, reader=Reader(self.pin.keys if self.pin else ()),
        )  # fmt: skip

    def _verify(self, request_branch: RequestBranch) -> "Report":
        # This import is slow, and sending a request does not need it.
        from bridge.verify.check import KnownAnswers, verify  # noqa: PLC0415

        report = verify(
            self.git, request_branch, self.presets, self.pin, self.sent.commit_of(request_branch.name)
        )
        return KnownAnswers(self.git, self.place).compare(report)

    # This method hides the builtin `list`, so no annotation after it may use that name.
    def list(self, limit: int = 50, *, verified: bool = True, group: str | None = None) -> list[Status]:
        """Return the newest requests on the remote, newest first. Answers are verified, for ``LIST_VERIFY_S`` at most.

        With ``verified=False``, no answer is. With ``group``, only that group's requests are returned, by their points.
        """
        listed = self.remote.list_branches(*self.patterns)
        unforwarded = self.unforwarded(listed)
        everything = (branch for branch in {*listed, *unforwarded} if requested_at(branch))
        newest = sorted(everything, key=age_sort_key, reverse=True)
        chosen = newest[:limit] if group is None else members(newest, group)
        tips = self.remote.fetch_listed({branch: listed[branch] for branch in chosen if branch in listed})
        branches = history.read_branches(self.git, tips)
        shown_branches = branches | unforwarded
        shown = [status_of(shown_branches[branch], self.git) for branch in chosen if branch in shown_branches]
        if any(request_branch.current_state is State.REQUESTED for request_branch in branches.values()):
            # A request's place in the queue depends on the others that wait.
            others = [branch for branch in newest[:_QUEUE] if branch in listed and branch not in {*chosen}]
            more = {branch: listed[branch] for branch in others}
            reasons = self._reasons(
                branches | history.read_branches(self.git, self.remote.fetch_listed(more))
            )
            shown = [replace(s, reason=reasons.get(s.branch)) if s.waits_for else s for s in shown]
        shown = [
            replace(s, reason=self.why_unforwarded(unforwarded[s.branch]))
            if s.branch in unforwarded and s.waits_for
            else s
            for s in shown
        ]
        marked = mark_unsigned(self.git, self.pin, shown, branches)
        if not verified:
            return marked
        ends = time.monotonic() + LIST_VERIFY_S
        return [self._concluded(status, shown_branches[status.branch], ends) for status in marked]

    def _concluded(self, status: Status, request_branch: RequestBranch, ends: float) -> Status:
        # An answer that cannot be read in time, or at all, does not keep the others from the list.
        if status.answered and time.monotonic() < ends:
            with suppress(KakeyaError):
                return status.concluded(self._verify(request_branch).conclusion)
        return status
