"""The checks that an answer gets both on its branch and in a folder."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.bus import wire
from bridge.bus.trees import CaseInsensitivePaths
from bridge.bus.wire import Gate, Result, State
from bridge.checklist import Check
from bridge.common import limits
from bridge.errors import ManifestError, PresetError
from bridge.manifest import parse_time
from bridge.presets import Preset
from bridge.reports.kinds import COMPARE
from bridge.reports.own import read_kinds
from bridge.verify.answer_files import Files

if TYPE_CHECKING:
    from bridge.gate import Voucher

_SHOWN_GAPS = 3
# At most this many reports of kinds that presets declare are described.
_MOST_APPLIED = 3
# The states in which every step has succeeded.
RAN_WHOLE = (State.SUCCEEDED, State.GATE_REJECTED, State.GATE_INCOMPLETE)


def contradiction(result: Result) -> str | None:
    """Return how the result contradicts its own state, or None."""
    if result.exit_code != wire.EXIT_CODES.get(result.state):
        return f"exit code {result.exit_code} does not match the state {result.state}"
    if result.state in RAN_WHOLE and any(command.exit_code != 0 for command in result.commands):
        return f"its state is {result.state}, but one of its commands failed"
    judged = result.gate if result.state in (State.SUCCEEDED, State.GATE_REJECTED) else None
    if judged and judged.accepted != (result.state is State.SUCCEEDED):
        return f"its state is {result.state}, but the gate's verdict is {judged.verdict}"
    if result.gate and result.gate.verdict == "ACCEPTED" and result.code == "request":
        return "its gate accepts what the requester's own code measured, and does not say so"
    if result.state is State.GATE_INCOMPLETE and (result.gate is None or result.gate.verdict != "INCOMPLETE"):
        return f"its state is {result.state}, but the gate does not say so"
    return None


def check_files(
    result: Result, files: Files, unexpected: Iterable[str] = (), besides: Collection[str] = ()
) -> Check:
    """Check that all files of the answer exist unchanged, and no others but ``besides``. ``unexpected`` are faults."""
    wrong = []
    digests = files.digests(file.path for file in result.files)
    for file in result.files:
        if not wire.is_answer_path(file.path):
            wrong.append(f"{file.path} is not a place for an answer's file")
        elif file.path not in digests:
            wrong.append(f"{file.path} is missing")
        elif digests[file.path] != file.sha256:
            wrong.append(f"{file.path} was changed")
    there = {path for path in (*files.files, *files.others) if path.startswith(f"{wire.FOLDER}/")}
    wrong += [f"{path} is not part of the answer" for path in sorted(there - own_paths(result) - {*besides})]
    places = CaseInsensitivePaths()
    wrong += [
        f"{path} and another of its files are the same where case is ignored"
        for path in (wire.RESULT, wire.EVIDENCE, *(file.path for file in result.files))
        if not places.add(path)
    ]
    wrong += unexpected
    for log in result.logs:
        digest = next((file for file in result.files if file.path == log.path), None)
        if digest is None or (not log.truncated and digest.sha256 != log.stream_sha256):
            wrong.append(f"{log.path} is not the log that was streamed")
    if wrong:
        return Check("files", ok=False, message="; ".join(wrong[:5]))
    return Check("files", ok=True, message=f"{len(result.files)} files match their digests")


def own_paths(result: Result) -> set[str]:
    """Return the paths of all files of an answer: the listed files, the file with the list, and the signature."""
    return {wire.RESULT, wire.EVIDENCE, *(file.path for file in result.files)}


def is_comparison(result: Result) -> bool:
    """Return whether the runner compared two trees in this answer."""
    return any(file.path == wire.COMPARISON for file in result.files)


def check_job(
    name: str, result: Result, files: Files, presets: Mapping[str, Preset]
) -> tuple[list[Check], Gate | None]:
    """Check commands and reports against the preset installed here. Also returns the verdict of the rules here."""
    compared, preset = _compare_preset(name, result, presets)
    if preset is None:
        return [compared], None
    checks = [compared, *_check_argv(preset, result)]
    if not (preset.gated or is_comparison(result)) or result.state not in RAN_WHOLE:
        return checks, None
    more, gate = _check_gate(preset, result, files)
    return [*checks, *more], gate


def _compare_preset(name: str, result: Result, presets: Mapping[str, Preset]) -> tuple[Check, Preset | None]:
    """Check that the runner used this installation's definition of the preset. Returns the preset if it did."""
    preset = presets.get(name)
    if result.preset_digest is None:
        message = "no preset was used"
    elif preset is None:
        message = f"{name} is not installed here, so its definition cannot be compared"
    elif preset.digest != result.preset_digest:
        message = f"the runner's {name} differs from the one installed here"
    elif preset.code != result.code:
        message = f"it says that the job's code was {result.code}, and that of {name} is {preset.code}"
        return Check("preset", ok=False, message=message), None
    else:
        return Check("preset", ok=True, message=f"{preset.digest[:19]}, the same as here"), preset
    return Check("preset", ok=None, message=message), None


def _check_argv(preset: Preset, result: Result) -> Iterator[Check]:
    """Check that the preset makes the same commands, except for the host's settings."""
    if not result.commands and result.state not in RAN_WHOLE:
        return
    try:
        params = preset.check_params(result.params)
        expected = preset.build_commands(params, dict.fromkeys(preset.env_names, "\0"))
    except PresetError as error:
        message = f"the preset cannot have been run with these parameters: {error.message}"
        yield Check("argv", ok=False, message=message)
        return
    ran = [command.argv for command in result.commands]
    whole = len(ran) == len(expected) if result.state in RAN_WHOLE else len(ran) <= len(expected)
    same = whole and all(
        len(there) == len(here) and all(a in ("\0", b) for a, b in zip(here, there, strict=True))
        for here, there in zip(expected, ran, strict=False)
    )
    yield Check("argv", ok=same, message=f"what ran is {'' if same else 'not '}what the preset says")


def _check_gate(preset: Preset, result: Result, files: Files) -> tuple[list[Check], Gate]:
    """Check that the gate installed here gives the same verdict as the runner's."""
    from bridge import gate  # noqa: PLC0415 - slow to import, and most answers have no gate

    paths = [file.path for file in result.files if file.path.startswith(f"{wire.REPORTS}/")]
    kinds = [COMPARE] if is_comparison(result) else preset.kinds
    conflict: list[Check] = []
    contents = files.read([*(log.path for log in result.logs), wire.KINDS], limits.REPORTS_BYTES)
    run = binding_of(result, contents)
    if isinstance(run, gate.RunBinding):
        if dict(run.kinds) != preset.reports and not is_comparison(result):
            message = "the answer declares other kinds of report than its preset"
            conflict = [Check("kinds", ok=False, message=message)]
        run = replace(run, kinds=preset.reports)

    def each() -> "Iterator[tuple[str, bytes, Voucher]]":
        remaining = limits.REPORTS_BYTES
        for path in paths:
            data = files.read([path], remaining).get(path, b"")
            remaining -= len(data)
            yield path, data, run

    verdict = gate.judge_each(each(), kinds)
    checks = conflict
    codes = {fault.code for fault in verdict.violations}
    if "RUN_UNNAMED" in codes:
        message = "a report does not name its run: an older engine wrote it"
        checks.append(Check("run", ok=None, message=message))
    elif paths and not codes & {"NOT_THIS_RUN", "EDITED"}:
        message = "the log of this run vouches for its reports"
        checks.append(Check("run", ok=True, message=message))
    accepted = result.state is State.SUCCEEDED
    count = "its report" if len(paths) == 1 else f"its {len(paths)} reports"
    message = f"no rule installed here objects to {count}{_own_checks(verdict)}"
    if verdict.violations:
        first = verdict.violations[0]
        message = f"the rules installed here say {verdict.verdict}: {first.code}: {first.message}"
    # A newer gate may accept what the runner rejected. What the runner accepted must be accepted here.
    ok = True if accepted == verdict.accepted else False if accepted else None
    return [*checks, Check("gate", ok=ok, message=message)], verdict


def _own_checks(judged: Gate) -> str:
    """Return which checks of the preset's own kinds were applied."""
    notes = [note.partition(": CHECKED: ")[2] for note in judged.notes]
    applied = [*dict.fromkeys(filter(None, notes))]
    more = f"; and {len(applied) - _MOST_APPLIED} more" if len(applied) > _MOST_APPLIED else ""
    return "".join(f"; {each}" for each in applied[:_MOST_APPLIED]) + more


def binding_of(result: Result, contents: Mapping[str, bytes]) -> "Voucher":
    """Return the run of an answer, treated as signed; or a code and a message if the answer has no times.

    ``contents`` are the answer's logs and, if its preset declares any, its kinds of report.
    """
    from bridge import gate  # noqa: PLC0415

    try:
        began, ended = parse_time(result.started_at), parse_time(result.finished_at)
    except ValueError:
        return "NO_RUN", "the answer does not say when it ran"
    try:
        kinds = read_kinds(contents[wire.KINDS]) if wire.KINDS in contents else {}
    except ManifestError as error:
        return "BAD_RUN", error.message
    return gate.RunBinding(
        gate.run_id(result.branch, result.request, result.token), began, ended, result.host, result.versions,
        tuple(contents.get(log.path, b"") for log in result.logs),
        argvs=tuple(tuple(command.argv) for command in result.commands),
        requester_measured=result.code == "request", is_signed=True, kinds=kinds, workload=result.workload,
        comparison=next((file.sha256 for file in result.files if file.path == wire.COMPARISON), None),
    )  # fmt: skip


def gaps(result: Result) -> list[str]:
    """Return what is missing in an answer: uncollected reports, cut logs, and surviving processes."""
    return [
        *(f"not collected: {each}" for each in result.skipped),
        *(f"{log.path}: only head and tail were kept" for log in result.logs if log.truncated),
        *(
            f"step {i} left processes that could not be ended: {', '.join(command.survivors)}"
            for i, command in enumerate(result.commands)
            if command.survivors
        ),
    ]


def check_gaps(result: Result) -> list[Check]:
    """Return a check that names what is missing in the answer, if anything is. The answer stays valid."""
    missing = gaps(result)
    more = f"; and {len(missing) - _SHOWN_GAPS} more" if len(missing) > _SHOWN_GAPS else ""
    return [Check("gaps", ok=None, message="; ".join(missing[:_SHOWN_GAPS]) + more)] if missing else []
