"""Verifies an answer from its branch alone: whether it is complete, and whether it answers this request."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from bridge.bus import history, objects, trees, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Gate, Result, State
from bridge.checklist import SIGNATURE, Check
from bridge.errors import KakeyaError, VerificationError
from bridge.manifest import Request, parse_manifest
from bridge.presets import Preset
from bridge.system.git import Git
from bridge.system.local_files import NoteFile
from bridge.verify.answer_checks import (
    RAN_WHOLE,
    check_files,
    check_gaps,
    check_job,
    contradiction,
    is_comparison,
    own_paths,
)
from bridge.verify.answer_files import Contents, read_result
from bridge.verify.plausibility import check_logs, check_times
from bridge.verify.public_keys import Pin
from bridge.verify.signature import check_signature, on_branch
from bridge.verify.signed_history import signed_commits
from bridge.verify.verdict import Conclusion, conclude

# Files of the protocol that lie beside an answer on its branch.
_OF_BRANCHES = (wire.REQUEST, wire.STATE, wire.CANCEL)
_KNOWN_FILE = "kakeya-answers"
_KNOWN_MOST = 1_000
_KNOWN_LINE = re.compile(r"([0-9a-f]{40}) (\S+)")


@dataclass(frozen=True)
class Report:
    """The result of all checks of one answer."""

    branch: str
    tip: str
    result: Result | None
    checks: list[Check]
    # The verdict of the rules installed here; None if the preset does not use the gate, or there is no report.
    gate: Gate | None = None

    @property
    def holds(self) -> bool:
        """Return whether no check failed."""
        return all(check.ok is not False for check in self.checks)

    @property
    def signed(self) -> bool:
        """Return whether a pinned key signed exactly this answer."""
        return any(check.name == SIGNATURE and check.ok for check in self.checks)

    @property
    def conclusion(self) -> Conclusion:
        """The conclusion about the answer."""
        return conclude(self.result, self.checks)

    @property
    def shown_gate(self) -> Gate | None:
        """The verdict of the rules installed here; None if they accept and another check, or the runner, does not."""
        judged = (
            self.conclusion.judged if self.result and self.result.gate and self.result.gate.accepted else ""
        )
        return self.gate if self.gate and (judged or not self.gate.accepted) else None

    def as_dict(self) -> dict[str, object]:
        """Return the object that ``--json`` prints."""
        gate = self.shown_gate
        checks = [check.as_dict() for check in self.checks]
        return {
            "branch": self.branch,
            "tip": self.tip,
            "holds": self.holds,
            "signed": self.signed,
            "checks": checks,
            "conclusion": self.conclusion.as_dict(),
            "gate": gate.model_dump(mode="json") if gate else None,
        }


def verify(
    git: Git,
    branch: RequestBranch,
    presets: Mapping[str, Preset],
    pin: Pin | None = None,
    sent: str | None = None,
) -> Report:
    """Check the answer on a branch against the branch's history, the presets installed here, and the pinned keys.

    ``sent`` is the request commit that this clone sent, if it sent one. Without a pinned key, this shows that the
    answer is complete and belongs to its request, but not who wrote it: that may be anyone who may push.
    """
    try:
        result = read_result(git, branch)
    except VerificationError as error:
        return Report(branch.name, branch.tip, None, [Check("answer", ok=False, message=error.message)])
    conflict = contradiction(result)
    ignored = _ignored(git, branch, result, pin)
    checks = [
        Check(
            "answer",
            ok=conflict is None,
            message=conflict or f"{result.shown_state}: {result.reason.message}",
        ),
        _check_history(git, branch, result, ignored),
    ]
    if sent is not None and sent != result.request:
        message = f"{sent[:12]} was sent from here, and the answer is about {result.request[:12]}"
        checks.append(Check("sent", ok=False, message=f"{message}: the branch was rewritten"))
    gate = None
    request, requested = _check_request(git, branch, result)
    checks.append(requested)
    try:
        contents = Contents.of(git, branch.tip, result)
        files = check_files(result, contents, _altered_workload(git, branch, result), _OF_BRANCHES)
        checks.append(files)
    except VerificationError as error:
        # The answer exceeds the limits for readers, so its content is not checked.
        checks.append(Check("files", ok=False, message=error.message))
        return Report(branch.name, branch.tip, result, checks)
    if request:
        more, gate = check_job(request.preset, result, contents, presets)
        checks += more
    checks += [*check_gaps(result), check_times(result)]
    if files.ok:
        checks += filter(None, [check_logs(git, branch, result, ignored)])
    checks.append(check_signature(contents, result, pin, on_branch(git, branch, result)))
    return Report(branch.name, branch.tip, result, checks, gate)


def _ignored(git: Git, branch: RequestBranch, result: Result, pin: Pin | None) -> Container[str]:
    """Return the states to ignore: if a pinned key signed the last state, all states that no pinned key signed."""
    if pin is None or not history.is_ancestor(git, result.request, branch.tip):
        return ()
    line = history.commits_between(git, result.request, branch.tip)
    signed = signed_commits(git, branch.name, line, pin.keys)
    return set(line) - signed if branch.tip in signed else ()


def _check_history(git: Git, branch: RequestBranch, result: Result, ignored: Container[str]) -> Check:
    """Check that the request is an ancestor of the answer, with only the runner's commits between them."""
    if branch.has_foreign_commits:
        return Check("history", ok=False, message="commits that no runner made lie on top of the answer")
    if not history.is_ancestor(git, result.request, branch.tip):
        message = f"the answer is about {result.request[:12]}, which is not part of this branch: history was rewritten"
        return Check("history", ok=False, message=message)
    if result.request != branch.request:
        return Check("history", ok=False, message="the state and the result name different requests")
    line = history.commits_between(git, result.request, branch.tip)
    tokens, last = [], None
    for commit, state, _ in history.read_states(git, line):
        if state and state.branch == branch.name and commit not in ignored:
            tokens.append((state.token, state.sequence))
            last = state
    if tokens != sorted(tokens):
        message = "the states are out of order: an earlier claim wrote after a later one"
        return Check("history", ok=False, message=message)
    if last is None or (last.runner, last.token, last.state) != (result.runner, result.token, result.state):
        message = "the state and the result name different runners, claims or outcomes"
        return Check("history", ok=False, message=message)
    message = f"{len(line)} commits from request to answer, claim {result.token}"
    return Check("history", ok=True, message=message)


def _check_request(git: Git, branch: RequestBranch, result: Result) -> tuple[Request | None, Check]:
    refused = result.state is State.REFUSED
    try:
        blob = objects.read_blob(git, result.request, wire.REQUEST, max_bytes=64 * 1024)
        request = parse_manifest(blob or b"")
    except KakeyaError as error:
        # The invalid manifest may be the reason for the refusal.
        return None, Check("request", ok=refused, message=f"the manifest is not valid: {error.message}")
    names = ("nonce", "preset", "requested_by")
    differing = [] if branch.name == result.branch else ["branch"]
    differing += [name for name in names if getattr(request, name) != getattr(result, name)]
    if request.workload and not refused:
        parents = objects.parents_of(git, result.request)
        if parents[:1] != [request.workload]:
            differing.append("workload")
        if request.against is not None and parents[1:] != [request.against]:
            differing.append("baseline")
    if request.workload and result.workload not in (None, request.workload):
        differing.append("workload")
    if result.params or result.commands:
        there = result.params
        unlike = [name for name, value in request.params.items() if str(there.get(name)) != str(value)]
        differing += [f"parameter {name}" for name in unlike]
    if result.state in RAN_WHOLE and (request.against is not None) != is_comparison(result):
        differing.append("comparison")
    if differing:
        message = f"the answer is to another request: {', '.join(differing)} differ"
        return request, Check("request", ok=False, message=message)
    message = f"{request.preset} {request.nonce}, asked by {request.requested_by}"
    return request, Check("request", ok=True, message=message)


def _altered_workload(git: Git, branch: RequestBranch, result: Result) -> list[str]:
    """Check that only the answer's own files, and what was in their way, changed between request and answer."""
    if not history.is_ancestor(git, result.request, branch.tip):
        return []
    changed = trees.changed_paths(git, result.request, branch.tip)
    listed = {*own_paths(result), *_OF_BRANCHES}
    listed |= {str(folder) for path in listed for folder in PurePosixPath(path).parents}
    # The list of files covers the answer's folder, except the manifest, which must not change.
    answers = {path for path in changed if path in listed or path.startswith(f"{wire.FOLDER}/")}
    altered = [path for path in changed if path == wire.REQUEST or path not in answers]
    return [f"{path} differs from the request's tree" for path in altered]


class KnownAnswers:
    """The answers verified in this clone, by branch and result. Answers are final, so a changed answer was replaced."""

    def __init__(self, git: Git, place: str = "") -> None:
        self._git = git
        self._file = NoteFile(git, _KNOWN_FILE, _KNOWN_LINE, _KNOWN_MOST)
        # No branch has a colon in its name.
        self._bus = f"{place}:" if place else ""

    def compare(self, report: Report) -> Report:
        """Record a valid answer. If it replaces another one, add a failed check unless a pinned key signed it."""
        name = f"{report.tip}:{wire.RESULT}"
        entry = objects.locate(self._git, [name]).get(name)
        before = self.of(report.branch)
        if entry is None or not report.holds or before == entry.oid:
            return report
        if before is not None and not report.signed:
            message = (
                f"another answer was verified here before, with the result {before[:12]}: it was replaced"
            )
            return replace(report, checks=[*report.checks, Check("known", ok=False, message=message)])
        self.note(report.branch, entry.oid)
        return report

    def of(self, branch: str) -> str | None:
        """Return the id of the result that was recorded for a branch, or None."""
        return next((result for result, name in self._file.read() if name == f"{self._bus}{branch}"), None)

    def note(self, branch: str, result: str) -> None:
        """Record the id of a result, unless the repository is read-only."""
        own = f"{self._bus}{branch}"
        others = [(oid, name) for oid, name in self._file.read() if name != own]
        self._file.write(f"{oid} {name}" for oid, name in [*others, (result, own)])
