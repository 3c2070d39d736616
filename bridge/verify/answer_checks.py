"""The checks that an answer gets both on its branch and in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bridge import limits
from bridge.bus import wire
from bridge.bus.folded import Folded
from bridge.bus.wire import Gate, Result, State
from bridge.checks import Check
from bridge.errors import KakeyaError, PresetError
from bridge.manifest import parse_time
from bridge.presets import Preset
from bridge.system import strict_json
from bridge.verify.answer_files import Files

if TYPE_CHECKING:
    from bridge.evidence import Bound

# The states in which every step has succeeded.
_RAN_WHOLE = (State.SUCCEEDED, State.GATE_REJECTED)


def contradiction(result: Result) -> str | None:
    """Return how the result contradicts its own state, or None."""
    if result.exit_code != wire.EXIT_CODES.get(result.state):
        return f"exit code {result.exit_code} does not match the state {result.state}"
    if result.state in _RAN_WHOLE and any(command.exit_code != 0 for command in result.commands):
        return f"its state is {result.state}, but one of its commands failed"
    if result.state is State.SUCCEEDED and result.gate and result.gate.verdict != "ACCEPTED":
        return f"its state is {result.state}, but the gate's verdict is {result.gate.verdict}"
    return None


def check_files(result: Result, files: Files, odd: Iterable[str] = ()) -> Check:
    """Check that all files of the answer exist unchanged, and that there are no others. ``odd`` are further faults."""
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
    wrong += [f"{path} is not part of the answer" for path in sorted(there - own_paths(result))]
    places = Folded()
    wrong += [
        f"{path} and another of its files are the same where case is ignored"
        for path in (wire.RESULT, wire.EVIDENCE, *(file.path for file in result.files))
        if not places.takes(path)
    ]
    wrong += odd
    for log in result.logs:
        digest = next((file for file in result.files if file.path == log.path), None)
        if digest is None or (not log.truncated and digest.sha256 != log.stream_sha256):
            wrong.append(f"{log.path} is not the log that was streamed")
    if wrong:
        return Check("files", ok=False, message="; ".join(wrong[:5]))
    cut = [log.path for log in result.logs if log.truncated]
    more = f"; cut to head and tail: {', '.join(cut)}" if cut else ""
    return Check("files", ok=True, message=f"{len(result.files)} files match their digests{more}")


def own_paths(result: Result) -> set[str]:
    """Return the paths that an answer may contain: those that it lists, and those of the protocol."""
    own = {wire.REQUEST, wire.STATE, wire.RESULT, wire.EVIDENCE, wire.CANCEL}
    return own | {file.path for file in result.files}


def check_job(
    name: str, result: Result, files: Files, presets: Mapping[str, Preset]
) -> tuple[list[Check], Gate | None]:
    """Check the commands and the reports against the preset that is installed here.

    Returns the checks, and the verdict of the rules installed here.
    """
    compared, preset = _compare_preset(name, result, presets)
    if preset is None:
        return [compared], None
    checks = [compared, *_check_argv(preset, result)]
    if not preset.gated or result.state not in _RAN_WHOLE:
        return checks, None
    more, gate = _check_gate(preset, result, files)
    return [*checks, *more], gate


def _compare_preset(name: str, result: Result, presets: Mapping[str, Preset]) -> tuple[Check, Preset | None]:
    """Check that the runner used the same definition of the preset as this installation. Returns the preset if so."""
    preset = presets.get(name)
    if result.preset_digest is None:
        return Check("preset", ok=None, message="no preset was used"), None
    if preset is None:
        message = f"{name} is not installed here, so its definition cannot be compared"
        return Check("preset", ok=None, message=message), None
    if preset.digest != result.preset_digest:
        message = f"the runner's {name} differs from the one installed here"
        return Check("preset", ok=None, message=message), None
    return Check("preset", ok=True, message=f"{preset.digest[:19]}, the same as here"), preset


def _check_argv(preset: Preset, result: Result) -> Iterator[Check]:
    """Check that the preset makes the same commands, except for the host's settings."""
    if not result.commands and result.state not in _RAN_WHOLE:
        return
    try:
        params = preset.check_params(result.params)
        expected = preset.build_commands(params, dict.fromkeys(preset.env_names, "\0"))
    except PresetError as error:
        message = f"the preset cannot have been run with these parameters: {error.message}"
        yield Check("argv", ok=False, message=message)
        return
    ran = [command.argv for command in result.commands]
    whole = len(ran) == len(expected) if result.state in _RAN_WHOLE else len(ran) <= len(expected)
    same = whole and all(
        len(there) == len(here) and all(a in ("\0", b) for a, b in zip(here, there, strict=True))
        for here, there in zip(expected, ran, strict=False)
    )
    message = "what ran is what the preset says" if same else "what ran is not what the preset says"
    yield Check("argv", ok=same, message=message)


def _check_gate(preset: Preset, result: Result, files: Files) -> tuple[list[Check], Gate]:
    """Check that the rules installed here give the same verdict as the runner's."""
    from bridge import evidence  # noqa: PLC0415 - slow to import, and most answers have no gate

    paths = [file.path for file in result.files if file.path.startswith(f"{wire.REPORTS}/")]
    untold: list[str] = []

    def each() -> Iterator[tuple[str, bytes]]:
        left = limits.REPORTS_BYTES
        for path in paths:
            data = files.read([path], left).get(path, b"")
            left -= len(data)
            if path.endswith(".json") and not _names_run(data):
                untold.append(path)
            yield path, data

    gate = evidence.judge_each(each(), preset.kinds, _run_of(result, files))
    checks = []
    if untold:
        message = f"{untold[0]} does not say of which run it is: an older engine wrote it"
        checks.append(Check("run", ok=None, message=message))
    elif paths and not any(fault.code == "RUN_UNBOUND" for fault in gate.violations):
        message = "the reports are of this run, and their rows are those of its log"
        checks.append(Check("run", ok=True, message=message))
    accepted = result.state is State.SUCCEEDED
    said = f"the rules installed here say {gate.verdict}"
    if gate.violations:
        said += f": {gate.violations[0].code}: {gate.violations[0].message}"
    if accepted == (gate.verdict == "ACCEPTED"):
        message = f"{said} of {len(paths)} reports" if accepted else said
        checks.append(Check("gate", ok=True, message=message))
    else:
        # Newer rules may find more in a report that the runner rejected. One that it accepted must be accepted here.
        checks.append(Check("gate", ok=False if accepted else None, message=said))
    return checks, gate


def _run_of(result: Result, files: Files) -> Bound | None:
    """Return the description of the answer's run; None if the answer does not say when it ran."""
    from bridge import evidence  # noqa: PLC0415

    logs = files.read([log.path for log in result.logs], limits.REPORTS_BYTES)
    try:
        began, ended = parse_time(result.started_at), parse_time(result.finished_at)
    except ValueError:
        return None
    told = evidence.run_id(result.branch, result.request, result.token)
    return evidence.Bound(
        told, began, ended, result.host, result.versions,
        tuple(logs.get(log.path, b"") for log in result.logs), required=result.code == "request",
        argvs=tuple(tuple(command.argv) for command in result.commands),
    )  # fmt: skip


def _names_run(data: bytes) -> bool:
    from bridge import evidence  # noqa: PLC0415

    try:
        report = strict_json.loads(
            data, what="the report", max_bytes=evidence.MAX_BYTES, max_depth=evidence.MAX_DEPTH
        )
    except KakeyaError:
        return True  # not a report at all
    return not isinstance(report, dict) or evidence.is_told(report)
