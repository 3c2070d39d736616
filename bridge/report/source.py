"""Where a run is read from: its branch on the bus, or a folder that `kakeya fetch` wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge import evidence, limits
from bridge.bus import wire
from bridge.bus.wire import Result, State
from bridge.checks import Check
from bridge.client import Client
from bridge.errors import UsageError, VerificationError
from bridge.presets import Preset
from bridge.system.local_files import read_regular
from bridge.verify import attestation, signature
from bridge.verify.pins import HOW_TO_PIN, Pin
from bridge.verify.plausibility import check_times


@dataclass(frozen=True)
class Source:
    """An answer, what was found out about it, and its files by path; those that are missing are not among them."""

    name: str
    result: Result
    checks: list[Check]
    files: Mapping[str, bytes]

    @property
    def holds(self) -> bool:
        """Say whether nothing that was looked at failed."""
        return all(check.ok is not False for check in self.checks)


def from_branch(client: Client, branch: str) -> Source:
    """Read an answer from the bus and check it.

    Raises UsageError where there is no such request, InfrastructureError where it has no answer yet, and
    VerificationError where its result cannot be read.
    """
    answer = client.answer(branch)
    report = answer.report
    if report.result is None:
        raise VerificationError(report.checks[0].message, fix=f"See: kakeya verify {branch}")
    return Source(branch, report.result, report.checks, answer.files)


def from_folder(folder: Path, pin: Pin | None, presets: Mapping[str, Preset]) -> Source:
    """Read an answer from a folder and check it: files against digests, digests against the signature.

    What only the branch knows (that the request came first, and what it asked for) is not looked at. Raises UsageError
    where no answer lies there, VerificationError where its result cannot be read.
    """
    content = read_regular(folder / wire.RESULT, wire.MAX_RESULT)
    if content is None:
        raise UsageError(
            f"{folder} holds no answer", fix="Name a folder that `kakeya fetch --out DIR` wrote."
        )
    result = wire.parse_result(content)
    files: dict[str, bytes] = {}
    left = limits.REPORTS_BYTES
    for file in result.files[: limits.ANSWER_FILES]:
        data = _read(folder, file.path, left) if wire.is_answer_path(file.path) else None
        if data is not None:
            files[file.path] = data
            left -= len(data)
    checks = [
        Check("answer", ok=None, message="read from a folder: the branch it came on was not looked at"),
        _check_files(result, files),
        *_check_gate(result, files, presets),
        check_times(result),
        _check_signature(folder, result, files, pin),
    ]
    return Source(result.branch, result, checks, files)


def reports_of(result: Result) -> list[str]:
    """Return the paths of an answer's reports."""
    return [
        file.path for file in result.files
        if file.path.startswith(f"{wire.REPORTS}/") and file.path.endswith(".json")
    ]  # fmt: skip


def _read(folder: Path, name: str, most: int = wire.MAX_FILE) -> bytes | None:
    """Return a regular file below a folder, of bounded size; None where there is none."""
    path = folder / name
    inside = path.resolve().is_relative_to(folder.resolve())
    return read_regular(path, min(most, wire.MAX_FILE)) if inside else None


def _check_files(result: Result, files: Mapping[str, bytes]) -> Check:
    wrong = []
    for file in result.files:
        data = files.get(file.path)
        if data is None:
            wrong.append(f"{file.path} is missing")
        elif hashlib.sha256(data).hexdigest() != file.sha256:
            wrong.append(f"{file.path} was changed")
    message = "; ".join(wrong[:5]) or f"{len(result.files)} files match their digests"
    return Check("files", ok=not wrong, message=message)


def _check_gate(result: Result, files: Mapping[str, bytes], presets: Mapping[str, Preset]) -> list[Check]:
    """What the gate accepted there, the rules installed here accept too."""
    if result.gate is None or result.state is not State.SUCCEEDED:
        return []
    preset = presets.get(result.preset or "")
    kinds = preset.kinds if preset and preset.digest == result.preset_digest else []
    gate = evidence.judge({path: files.get(path, b"") for path in reports_of(result)}, kinds)
    if gate.verdict == "ACCEPTED":
        return [Check("gate", ok=True, message="the rules installed here accept it")]
    first = gate.violations[0]
    message = f"the rules installed here reject it: {first.code}: {first.message}"
    return [Check("gate", ok=False, message=message)]


def _check_signature(folder: Path, result: Result, files: Mapping[str, bytes], pin: Pin | None) -> Check:
    data = _read(folder, wire.EVIDENCE)
    if pin is None:
        said = "it is signed, but no key is pinned here" if data else "it is not signed"
        return Check(signature.NAME, ok=None, message=said, fix=HOW_TO_PIN)
    if data is None:
        return Check(signature.NAME, ok=False, message="it is not signed, and a key is pinned")
    here = {wire.RESULT: _read(folder, wire.RESULT) or b"", **files}
    try:
        statement, key = attestation.open_envelope(data, pin.keys)
        changed = list(
            signature.differences(statement, result, attestation.digests(here), unseen=(wire.REQUEST,))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return Check(signature.NAME, ok=False, message="what was signed has not the shape of evidence")
    except VerificationError as error:
        return Check(signature.NAME, ok=False, message=error.message)
    if changed:
        return Check(signature.NAME, ok=False, message="; ".join(changed[:5]))
    message = f"signed by {result.runner.id} with {key.short}, pinned by {pin.source}"
    return Check(signature.NAME, ok=True, message=message)
