"""Finds the run that vouches for a report: a signed file beside the report, or the fetched answer that contains it.

``X.run`` beside ``X.json`` contains the answer's result and logs of the job that wrote the report, and the evidence
that the runner signed. This covers the digests of result, logs, request and report.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridge.bus import wire
from bridge.bus.wire import Result
from bridge.common import limits, strict_json
from bridge.errors import KakeyaError, ManifestError, VerificationError
from bridge.gate import NO_RUN, RunBinding, Voucher
from bridge.system.local_files import read_regular
from bridge.verify import attestation
from bridge.verify.answer_checks import binding_of, contradiction
from bridge.verify.public_keys import Pin
from bridge.verify.signature import differences
from bridge.verify.verdict import Trust

SUFFIX = ".run"
VERSION = 1

_NOT_LISTED: Voucher = (
    "EDITED",
    "the file is not one that this run wrote: no file of the run has its digest",
)
_MAX_DEPTH = 4
_MAX_FOLDERS = 8

# A job's files by their path in the answer.
Files = Mapping[str, bytes]
_PARTS = {"result": wire.RESULT, "evidence": wire.EVIDENCE}
# Parts that only some runs have. Older versions ignore them.
_MORE_PARTS = {"kinds": wire.KINDS}


def parts_of(result: Result) -> list[str]:
    """Return the paths of an answer's files that its run file holds."""
    more = [file.path for file in result.files if file.path in _MORE_PARTS.values()]
    return [*_PARTS.values(), *(log.path for log in result.logs), *more]


def make_run_file(files: Files) -> bytes:
    """Return the run file for the reports of an answer, from the answer's files."""
    result = wire.parse_result(files[wire.RESULT])
    logs = {log.path: b64encode(files[log.path]).decode() for log in result.logs}
    parts = {name: files[path].decode() for name, path in _PARTS.items()}
    parts |= {name: files[path].decode() for name, path in _MORE_PARTS.items() if path in files}
    return strict_json.dumps({"version": VERSION, **parts, "logs": logs}).encode()


def voucher_for(
    report: Path, data: bytes, pin: Pin | None, pin_for: Callable[[Path], Pin | None] | None = None
) -> Voucher:
    """Return the run that vouches for ``X.json``, from ``X.run`` or the closest answer above it; or why there is none.

    A run file needs a pinned key. A fetched answer counts as on its branch: without a pinned key, it vouches for what
    it contains, and the run says that nobody is known to have signed it. ``pin_for`` returns the keys that count for a
    run file, by its report; by default the pinned ones.
    """
    run_file = read_regular(report.with_suffix(SUFFIX), limits.FILE_BYTES)
    try:
        digest = hashlib.sha256(data).hexdigest()
        files = _read_run_file(run_file) if run_file is not None else _answer_above(report)
        if files is None:
            return NO_RUN
        if run_file is not None:
            return _verified(files, digest, pin_for(report) if pin_for else pin)
        return _whole(files, digest) if pin is None else _verified(files, digest, pin)
    except KakeyaError as error:
        return "BAD_RUN", error.message


def _verified(files: Files, digest: str, pin: Pin | None) -> Voucher:
    """Return the run if a pinned key signed all of it and the report. A damaged run is a KakeyaError."""
    result = wire.parse_result(files[wire.RESULT])
    if wire.EVIDENCE not in files:
        return "NO_RUN", "the run is not signed"
    if pin is None:
        return "OTHER_SIGNER", f"the run is signed with {_signers(files)}, and no key is pinned here"
    try:
        signed, _ = attestation.open_envelope(files[wire.EVIDENCE], pin.keys)
    except VerificationError as error:
        if not error.message.startswith("signed with another key"):
            raise
        return "OTHER_SIGNER", f"{error.message}; pinned by {pin.source}: {pin.shown}"
    listed = {file.path: file.sha256 for file in result.files}
    if digest not in listed.values():
        return _NOT_LISTED
    here = listed | attestation.digests({path: data for path, data in files.items() if path != wire.EVIDENCE})
    faults = [*differences(signed, result, here, unseen=(wire.REQUEST,))]
    if fault := contradiction(result):
        faults.append(fault)
    if faults:
        raise VerificationError("; ".join(faults[:5]))
    return _as(Trust.SIGNED, binding_of(result, files), result.runner.id)


def _whole(files: Files, digest: str) -> Voucher:
    """Return the run of a fetched answer that nobody is known to have signed. A damaged answer is a KakeyaError."""
    result = wire.parse_result(files[wire.RESULT])
    listed = {file.path: file.sha256 for file in result.files}
    if digest not in listed.values():
        return _NOT_LISTED
    parts = {log.path: files.get(log.path) for log in result.logs}
    parts |= {path: files.get(path) for path in _MORE_PARTS.values() if path in files or path in listed}
    faults = [
        f"{path} is not the one of this answer"
        for path, log in parts.items()
        if log is None or hashlib.sha256(log).hexdigest() != listed.get(path)
    ]
    if fault := contradiction(result):
        faults.append(fault)
    if faults:
        raise VerificationError("; ".join(faults[:5]))
    return _as(Trust.UNPINNED if wire.EVIDENCE in files else Trust.UNSIGNED, binding_of(result, files))


def _as(trust: Trust, run: Voucher, signer: str = "") -> Voucher:
    return replace(run, trust=str(trust), signer=signer) if isinstance(run, RunBinding) else run


def _signers(files: Files) -> str:
    try:
        attestation.open_envelope(files[wire.EVIDENCE], ())
    except VerificationError as error:
        return error.message.rpartition(": ")[2]
    return "an unknown key"


def _read_run_file(data: bytes) -> Files:
    """Return the files in a run file. Other bytes are a ManifestError."""
    parsed = strict_json.loads(data, what="the run file", max_bytes=limits.FILE_BYTES, max_depth=_MAX_DEPTH)
    try:
        if parsed["version"] != VERSION:
            raise ManifestError(f"the run file has version {parsed['version']!r}, not {VERSION}")
        files = {path: _text(parsed[name]).encode() for name, path in _PARTS.items()}
        files |= {path: _text(parsed[name]).encode() for name, path in _MORE_PARTS.items() if name in parsed}
        logs: dict[str, Any] = parsed["logs"]
        return files | {str(path): b64decode(_text(log), validate=True) for path, log in logs.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"the run file lacks a part, or it is not text: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value


def _answer_above(report: Path) -> Files | None:
    """Return the files of the fetched answer in the closest folder above a report; None without one."""
    for folder in [*report.absolute().parents][:_MAX_FOLDERS]:
        content = read_regular(folder / wire.RESULT, wire.MAX_RESULT)
        if content is not None:
            result: Result = wire.parse_result(content)
            paths = [*_PARTS.values(), *_MORE_PARTS.values()]
            paths += [log.path for log in result.logs if wire.is_answer_path(log.path)]
            contents = {path: read_regular(folder / path, limits.FILE_BYTES) for path in paths}
            return {path: data for path, data in contents.items() if data is not None}
    return None
