"""The signed statement of a runner: an in-toto Statement about one answer, in a DSSE envelope.

Runner and reader build the statement with the same function from the same facts, so neither can forget a field that
the other one hashes. docs/evidence.md describes the format.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from bridge.bus import wire
from bridge.bus.wire import Result, State
from bridge.common import strict_json
from bridge.errors import ManifestError, VerificationError
from bridge.verify.public_keys import ANOTHER_KEY, PublicKey

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
VERSION = 1

# Subjects with this prefix are commits; all others are files of the answer.
REQUEST_COMMIT = "request"
WORKLOAD_COMMIT = "workload"

_MAX_DEPTH = 12


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of files, by path."""
    return {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


def make_statement(result: Result, files: Mapping[str, str], upon: str) -> dict[str, Any]:
    """Return the statement on an answer: its result, its files, and the branch's last commit before the answer.

    ``files`` has the SHA-256, by path, of all files that the result lists, of the result itself, and of the manifest.
    """
    subjects: list[dict[str, Any]] = [
        {"name": path, "digest": {"sha256": digest}} for path, digest in sorted(files.items())
    ]
    subjects.append({"name": REQUEST_COMMIT, "digest": {"gitCommit": result.request}})
    if result.workload:
        subjects.append({"name": WORKLOAD_COMMIT, "digest": {"gitCommit": result.workload}})
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(result, upon),
    }


def _predicate(result: Result, upon: str) -> dict[str, Any]:
    """Return a test-result predicate. Facts for which that type has no field are in ``kakeya``."""
    algorithm, _, digest = (result.preset_digest or "").partition(":")
    preset = {"name": f"presets/{result.preset}", "digest": {algorithm: digest}}
    steps = {PurePosixPath(command.log).stem: command.exit_code == 0 for command in result.commands}
    return {
        "result": "PASSED" if result.state is State.SUCCEEDED else "FAILED",
        "configuration": [preset] if digest else [],
        "passedTests": [step for step, passed in steps.items() if passed],
        "failedTests": [step for step, passed in steps.items() if not passed],
        "kakeya": {
            "version": VERSION,
            "branch": result.branch,
            "nonce": result.nonce,
            "requested_by": result.requested_by,
            "trusted_by": result.trusted_by,
            "upon": upon,
            "state": str(result.state),
            "reason": result.reason.code,
            "exit_code": result.exit_code,
            "preset": result.preset,
            "preset_digest": result.preset_digest,
            "code": result.code,
            "token": result.token,
            "runner": result.runner.model_dump(),
            "host": result.host.get("fingerprint"),
            "started_at": result.started_at,
            "finished_at": result.finished_at,
            "gate": result.gate.verdict if result.gate else None,
        },
    }


def sign(statement: Mapping[str, Any], signer: "Signer") -> bytes:
    """Return the envelope file with the signed statement."""
    from securesystemslib.dsse import Envelope  # noqa: PLC0415 - only who signs or verifies pays for it

    envelope = Envelope(strict_json.dumps(statement).encode(), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return strict_json.dumps(envelope.to_dict()).encode()


def open_envelope(data: bytes, keys: Sequence[PublicKey]) -> tuple[dict[str, Any], PublicKey]:
    """Return the statement in an envelope, and the key among ``keys`` that signed it.

    Raises:
        VerificationError: it is not a valid envelope, or none of the keys signed it.
    """
    from securesystemslib import exceptions  # noqa: PLC0415 - only who signs or verifies pays for it
    from securesystemslib.dsse import Envelope  # noqa: PLC0415
    from securesystemslib.signer import Key, SSlibKey  # noqa: PLC0415

    known = {key.id: key for key in keys}
    ours: list[Key] = [SSlibKey(key.id, "ed25519", "ed25519", {"public": key.raw.hex()}) for key in keys]
    try:
        envelope = Envelope.from_dict(_loads(data, "the envelope"))
        signed_with = sorted(envelope.signatures)
    except (KeyError, TypeError, ValueError, AttributeError, exceptions.Error) as error:
        raise VerificationError(f"{wire.EVIDENCE} is not a DSSE envelope") from error
    if not known.keys() & set(signed_with):
        who = ", ".join(f"sha256:{keyid[:16]!s}" for keyid in signed_with[:3]) or "nobody"
        raise VerificationError(f"signed with another key: {who}", fix=ANOTHER_KEY)
    try:
        (keyid,) = envelope.verify(ours, threshold=1)
    except exceptions.Error as error:
        raise VerificationError("the signature does not fit: the evidence was changed or forged") from error
    statement = _loads(envelope.payload, "the signed statement")
    types = (envelope.payload_type, statement.get("_type"), statement.get("predicateType"))
    if types != (PAYLOAD_TYPE, STATEMENT_TYPE, PREDICATE_TYPE):
        raise VerificationError("what was signed is not a statement on a test result")
    return statement, known[keyid]


def _loads(data: bytes, noun: str) -> dict[str, Any]:
    try:
        value = strict_json.loads(data, what=noun, max_bytes=wire.MAX_EVIDENCE, max_depth=_MAX_DEPTH)
    except ManifestError as error:
        raise VerificationError(error.message) from error
    if not isinstance(value, dict):
        raise VerificationError(f"{noun} is not a JSON object")
    return value
