"""Checking an answer offline, from the branch alone: is it whole, and is it the answer to this request."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge import evidence, limits
from bridge.bus import history, objects, trees, wire
from bridge.bus.history import View
from bridge.bus.wire import Gate, Result, State
from bridge.checks import Check
from bridge.errors import KakeyaError, PresetError, VerificationError
from bridge.manifest import Request, parse_manifest, parse_time
from bridge.presets import Preset
from bridge.system import strict_json
from bridge.system.git import Git
from bridge.verify.answer_files import Contents
from bridge.verify.pins import Pin
from bridge.verify.plausibility import check_logs, check_times
from bridge.verify.signature import NAME as SIGNATURE
from bridge.verify.signature import check_signature
from bridge.verify.signed_history import signed_commits

# The states in which every step has run, and run well.
_RAN_WHOLE = (State.SUCCEEDED, State.GATE_REJECTED)


class _Note(Protocol):
    def __call__(self, name: str, *, ok: bool | None, message: str) -> None: ...


@dataclass(frozen=True)
class Report:
    """Everything that was looked at in one answer."""

    branch: str
    tip: str
    result: Result | None
    checks: list[Check]
    # What the rules installed here say of the reports; None where the preset asks for nothing, or nothing was left.
    gate: Gate | None = None

    @property
    def holds(self) -> bool:
        """Say whether nothing that was looked at failed."""
        return all(check.ok is not False for check in self.checks)

    @property
    def signed(self) -> bool:
        """Say whether a pinned key signed exactly this answer."""
        return any(check.name == SIGNATURE and check.ok for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        """Return the form that `--json` prints."""
        checks = [check.as_dict() for check in self.checks]
        return {
            "branch": self.branch,
            "tip": self.tip,
            "holds": self.holds,
            "signed": self.signed,
            "checks": checks,
            "gate": self.gate.model_dump(mode="json") if self.gate else None,
        }


def verify(
    git: Git, view: View, presets: Mapping[str, Preset], pin: Pin | None = None, sent: str | None = None
) -> Report:
    """Check the answer on a branch against the branch's own history, the presets installed here, and a pinned key.

    `sent` is the request commit that was sent from here, where one was.

    Without a pin this shows that an answer is whole and belongs to its request. It does not show who wrote it: anyone
    who may push to the branch could have written all of it.
    """
    checks: list[Check] = []

    def note(name: str, *, ok: bool | None, message: str) -> None:
        checks.append(Check(name, ok, message))

    try:
        result = read_result(git, view)
    except VerificationError as error:
        note("answer", ok=False, message=error.message)
        return Report(view.branch, view.tip, None, checks)
    odd = _contradiction(result)
    note("answer", ok=odd is None, message=odd or f"{result.state}: {result.reason.message}")
    ignored = _ignored(git, view, result, pin)
    _check_history(git, view, result, note, ignored)
    if sent is not None and sent != result.request:
        message = f"{sent[:12]} was sent from here, and the answer is about {result.request[:12]}"
        note("sent", ok=False, message=f"{message}: the branch was rewritten")
    gate = None
    request = _check_request(git, view, result, note)
    try:
        contents = Contents.of(git, view.tip, result)
        _check_files(git, view, result, contents, note)
    except VerificationError as error:
        # More than a reader takes: what it says is not looked at.
        note("files", ok=False, message=error.message)
        return Report(view.branch, view.tip, result, checks)
    if request:
        preset = _check_preset(request, result, presets, note)
        if preset:
            _check_argv(preset, result, note)
            gate = _check_gate(contents, preset, result, note)
    checks.append(check_times(result))
    checks += filter(None, [check_logs(git, view, result, ignored)])
    checks.append(check_signature(git, view, result, contents, pin))
    return Report(view.branch, view.tip, result, checks, gate)


def read_result(git: Git, view: View) -> Result:
    """Return a finished request's result. Raises VerificationError where there is none or it is not valid."""
    if not view.stands.is_final:
        raise VerificationError(
            f"{view.branch} has no answer yet: it is {view.stands}",
            fix=f"Wait for it: kakeya wait {view.branch}",
        )
    return wire.parse_result(objects.read_blob(git, view.tip, wire.RESULT, max_bytes=wire.MAX_RESULT))


def _contradiction(result: Result) -> str | None:
    """Return what in the result contradicts the state that it names, or None."""
    if result.exit_code != wire.EXIT_CODES.get(result.state):
        return f"exit code {result.exit_code} is not what {result.state} stands for"
    if result.state in _RAN_WHOLE and any(command.exit_code != 0 for command in result.commands):
        return f"it is said to be {result.state}, and one of its commands failed"
    if result.state is State.SUCCEEDED and result.gate and result.gate.verdict != "ACCEPTED":
        return f"it is said to be {result.state}, and the gate said {result.gate.verdict}"
    return None


def _ignored(git: Git, view: View, result: Result, pin: Pin | None) -> Container[str]:
    """Return the commits whose states count for nothing: if a pinned key signed the last one, those it did not sign."""
    if pin is None or not history.is_ancestor(git, result.request, view.tip):
        return ()
    line = history.commits_between(git, result.request, view.tip)
    signed = signed_commits(git, view.branch, line, pin.keys)
    return set(line) - signed if view.tip in signed else ()


def _check_history(git: Git, view: View, result: Result, note: _Note, ignored: Container[str]) -> None:
    """The request lies below the answer, and nothing but answers lies between them."""
    if view.foreign:
        note("history", ok=False, message="commits that no runner made lie on top of the answer")
        return
    if not history.is_ancestor(git, result.request, view.tip):
        message = f"the answer is about {result.request[:12]}, which is not part of this branch: history was rewritten"
        note("history", ok=False, message=message)
        return
    if result.request != view.request:
        note("history", ok=False, message="the state and the result name different requests")
        return
    line = history.commits_between(git, result.request, view.tip)
    tokens, last = [], None
    for commit, state, _ in history.states(git, line):
        if state and state.branch == view.branch and commit not in ignored:
            tokens.append((state.token, state.sequence))
            last = state
    if tokens != sorted(tokens):
        note(
            "history",
            ok=False,
            message="the states are out of order: an earlier claim wrote after a later one",
        )
    elif last is None or (last.runner, last.token, last.state) != (result.runner, result.token, result.state):
        note(
            "history", ok=False, message="the state and the result name different runners, claims or outcomes"
        )
    else:
        note("history", ok=True, message=f"{len(line)} commits from request to answer, claim {result.token}")


def _check_request(git: Git, view: View, result: Result, note: _Note) -> Request | None:
    """The result repeats what was asked for."""
    try:
        blob = objects.read_blob(git, result.request, wire.REQUEST, max_bytes=64 * 1024)
        request = parse_manifest(blob or b"")
    except KakeyaError as error:
        refused = result.state is State.REFUSED
        note("request", ok=refused, message=f"the manifest is not valid: {error.message}")
        return None
    differing = [
        name
        for name, asked, answered in (
            ("branch", view.branch, result.branch),
            ("nonce", request.nonce, result.nonce),
            ("preset", request.preset, result.preset),
            ("requested_by", request.requested_by, result.requested_by),
        )
        if asked != answered
    ]
    refused = result.state is wire.State.REFUSED  # it may be what it was refused for
    if request.workload and not refused and request.workload != objects.parent_of(git, result.request):
        differing.append("workload")
    if request.workload and result.workload not in (None, request.workload):
        differing.append("workload")
    unlike = [
        name for name, value in request.params.items()
        if (result.params or result.commands) and str(result.params.get(name)) != str(value)
    ]  # fmt: skip
    differing += [f"parameter {name}" for name in unlike]
    if differing:
        note("request", ok=False, message=f"the answer is to another request: {', '.join(differing)} differ")
    else:
        note("request", ok=True, message=f"{request.preset} {request.nonce}, asked by {request.requested_by}")
    return request


def _check_files(git: Git, view: View, result: Result, contents: Contents, note: _Note) -> None:
    """Every file of the answer is there and unchanged, and no other came along."""
    wrong = []
    digests = contents.digests(file.path for file in result.files)
    for file in result.files:
        if not wire.is_answer_path(file.path):
            wrong.append(f"{file.path} is not a place for an answer's file")
        elif file.path not in digests:
            wrong.append(f"{file.path} is missing")
        elif digests[file.path] != file.sha256:
            wrong.append(f"{file.path} was changed")
    listed = {file.path for file in result.files} | {
        wire.REQUEST, wire.STATE, wire.RESULT, wire.EVIDENCE, wire.CANCEL
    }  # fmt: skip
    there = {path for path in (*contents.files, *contents.others) if path.startswith(f"{wire.FOLDER}/")}
    wrong += [f"{path} is not part of the answer" for path in sorted(there - listed)]
    wrong += _altered_workload(git, view, result, listed)
    for log in result.logs:
        digest = next((file for file in result.files if file.path == log.path), None)
        if digest is None or (not log.truncated and digest.sha256 != log.stream_sha256):
            wrong.append(f"{log.path} is not the log that was streamed")
    if wrong:
        note("files", ok=False, message="; ".join(wrong[:5]))
    else:
        cut = [log.path for log in result.logs if log.truncated]
        more = f"; cut to head and tail: {', '.join(cut)}" if cut else ""
        note("files", ok=True, message=f"{len(result.files)} files match their digests{more}")


def _altered_workload(git: Git, view: View, result: Result, listed: set[str]) -> list[str]:
    """Between request and answer only the answer's own files change."""
    if not history.is_ancestor(git, result.request, view.tip):
        return []
    changed = trees.changed(git, result.request, view.tip)
    # What lies in the answer's own folder is judged by the list of files; the manifest stays as it was.
    answers = {path for path in changed if path in listed or path.startswith(f"{wire.FOLDER}/")}
    odd = [path for path in changed if path == wire.REQUEST or path not in answers]
    return [f"{path} differs from the request's tree" for path in odd]


def _check_preset(
    request: Request, result: Result, presets: Mapping[str, Preset], note: _Note
) -> Preset | None:
    """The runner used the same definition of the preset as this client has. Returns it where that is so."""
    preset = presets.get(request.preset)
    if result.preset_digest is None:
        note("preset", ok=None, message="no preset was used")
    elif preset is None:
        note(
            "preset",
            ok=None,
            message=f"{request.preset} is not installed here, so its definition cannot be compared",
        )
    elif preset.digest != result.preset_digest:
        note("preset", ok=None, message=f"the runner's {request.preset} differs from the one installed here")
    else:
        note("preset", ok=True, message=f"{preset.digest[:19]}, the same as here")
        return preset
    return None


def _check_argv(preset: Preset, result: Result, note: _Note) -> None:
    """What ran is what the preset says, up to the settings of the host."""
    if not result.commands and result.state not in _RAN_WHOLE:
        return
    try:
        expected = preset.build_commands(result.params, dict.fromkeys(preset.env_names, "\0"))
    except PresetError as error:
        message = f"the preset cannot have been run with these parameters: {error.message}"
        note("argv", ok=False, message=message)
        return
    ran = [command.argv for command in result.commands]
    whole = len(ran) == len(expected) if result.state in _RAN_WHOLE else len(ran) <= len(expected)
    same = whole and all(
        len(there) == len(here) and all(a in ("\0", b) for a, b in zip(here, there, strict=True))
        for here, there in zip(expected, ran, strict=False)
    )
    message = "what ran is what the preset says" if same else "what ran is not what the preset says"
    note("argv", ok=same, message=message)


def _run_of(contents: Contents, result: Result) -> evidence.Bound | None:
    """Return the run that an answer is of; None where it does not say when that was."""
    logs = contents.read([log.path for log in result.logs], limits.REPORTS_BYTES)
    try:
        began, ended = parse_time(result.started_at), parse_time(result.finished_at)
    except ValueError:
        return None
    told = evidence.run_id(result.branch, result.request, result.token)
    return evidence.Bound(
        told, began, ended, result.host, result.versions,
        tuple(logs.get(log.path, b"") for log in result.logs), required=result.code == "request",
    )  # fmt: skip


def _names_run(data: bytes) -> bool:
    try:
        report = strict_json.loads(
            data, what="the report", max_bytes=wire.MAX_FILE, max_depth=evidence.MAX_DEPTH
        )
    except KakeyaError:
        return True  # which is no report at all
    return not isinstance(report, dict) or evidence.is_told(report)


def _check_gate(contents: Contents, preset: Preset, result: Result, note: _Note) -> Gate | None:
    """The rules installed here say of the reports what was said where they were measured. Return what they say."""
    if not preset.gated or result.state not in _RAN_WHOLE:
        return None
    paths = [file.path for file in result.files if file.path.startswith(f"{wire.REPORTS}/")]
    read = contents.read(paths, limits.REPORTS_BYTES)
    files = {path: read.get(path, b"") for path in paths}
    gate = evidence.judge(files, preset.kinds, _run_of(contents, result))
    untold = [path for path, data in files.items() if path.endswith(".json") and not _names_run(data)]
    if untold:
        note("run", ok=None, message=f"{untold[0]} does not say of which run it is: an older engine wrote it")
    elif files and not any(fault.code == "RUN_UNBOUND" for fault in gate.violations):
        note("run", ok=True, message="the reports are of this run, and their rows are those of its log")
    accepted = result.state is State.SUCCEEDED
    said = f"the rules installed here say {gate.verdict}"
    if gate.violations:
        said += f": {gate.violations[0].code}: {gate.violations[0].message}"
    if accepted == (gate.verdict == "ACCEPTED"):
        note("gate", ok=True, message=f"{said} of {len(paths)} reports" if accepted else said)
    else:
        # Later rules may say more of a report that was rejected there; what was accepted must hold here.
        note("gate", ok=False if accepted else None, message=said)
    return gate
