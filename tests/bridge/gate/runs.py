"""Signed runs as a runner leaves them: the files of an answer, and ``X.run`` beside ``X.json``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from bridge.bus import wire
from bridge.common import strict_json
from bridge.verify import attestation
from bridge.verify.public_keys import Pin, PublicKey
from bridge.verify.run_file import make_run_file
from tests.bridge.gate import reports
from tests.bridge.gate.reports import Report

REPORT, LOG = f"{wire.REPORTS}/report.json", f"{wire.FOLDER}/logs/measure-0.log"


class Key:
    """A runner's key."""

    def __init__(self) -> None:
        private = Ed25519PrivateKey.generate()
        self.public = PublicKey(private.public_key().public_bytes_raw())
        raw = {"public": self.public.raw.hex()}
        self.signer = CryptoSigner(private, SSlibKey(self.public.id, "ed25519", "ed25519", raw))
        self.pin = Pin((self.public,), "a test")


def answer(key: Key | None, report: Report, **fields: object) -> dict[str, bytes]:
    """Return the files of an answer whose job measured a report. ``log`` and other ``fields`` replace its facts."""
    data = json.dumps(report).encode()
    log = fields.pop("log", None) or reports.as_log(*reports.log_lines(report))
    assert isinstance(log, bytes)
    files = {wire.REQUEST: b"schema: 2\n", LOG: log, REPORT: data}
    digest = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    result = {
        "schema_version": 2, "state": "succeeded", "exit_code": 0, "branch": "mac-bridge/job-1", "nonce": None,
        "reason": {"code": "succeeded", "message": "every step succeeded"}, "request": "c" * 40, "workload": None,
        "requested_by": None, "preset": None, "preset_digest": None, "code": "installed", "params": {},
        "commands": [
            {"argv": list(reports.argv_of(report)), "exit_code": 0, "seconds": 1.0, "log": LOG},
        ],
        "token": 1, "runner": {"id": "mac", "instance": "one", "version": "0.1.0"},
        "host": {"memory_bytes": reports.MEMORY_BYTES},
        "versions": {"mlx": "0.32.4"}, "started_at": f"{reports.BEGAN:%Y-%m-%dT%H:%M:%SZ}",
        "finished_at": f"{reports.ENDED:%Y-%m-%dT%H:%M:%SZ}", "seconds": 900.0,
        "logs": [
            {
                "path": LOG, "stream_sha256": digest[LOG], "stream_bytes": len(log), "kept_bytes": len(log),
                "truncated": False,
            },
        ],
        "files": [{"path": path, "sha256": digest[path], "size": len(files[path])} for path in (LOG, REPORT)],
        **fields,
    }  # fmt: skip
    files[wire.RESULT] = strict_json.dumps(result).encode()
    return signed(key, files)


def signed(key: Key | None, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return an answer's files with a runner's signature on all of them."""
    if key is None:
        return files
    statement = attestation.make_statement(
        wire.parse_result(files[wire.RESULT]), attestation.digests(files), "d" * 40
    )
    return files | {wire.EVIDENCE: attestation.sign(statement, key.signer)}


def write_pair(folder: Path, files: dict[str, bytes]) -> Path:
    """Write a report and its run file, and return the report's path."""
    path = folder / "report.json"
    path.write_bytes(files[REPORT])
    path.with_suffix(".run").write_bytes(make_run_file(files))
    return path
