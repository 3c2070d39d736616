"""Requests that Schemathesis makes from the server's own OpenAPI document: none may end in a 500."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.serve.world import backends, serving

BIN = Path(sys.executable).parent
PROGRAM = shutil.which("schemathesis", path=os.fspath(BIN)) or shutil.which("schemathesis")
EXAMPLES = 6


@pytest.mark.long
@pytest.mark.skipif(PROGRAM is None, reason="Schemathesis is not installed")
@pytest.mark.parametrize("backend", backends())
def test_no_request_ends_in_a_500(tmp_path, backend):
    """Fewer tokens and a short time limit keep answers small; the seed makes the run repeatable."""
    with serving(tmp_path, "--backend", backend, "--max-tokens", "4", "--request-timeout", "20") as server:
        server.chat(max_tokens=1)
        argv = [PROGRAM, "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--seed", "7"]
        argv += ["--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing", "--workers", "1"]
        argv += ["--request-timeout", "60", "--no-color", "--generation-database", "none"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "err-" not in server.said()
        assert server.chat(max_tokens=1).status_code == 200


@pytest.mark.long
def test_document_describes_every_request(server):
    document = server.http.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for name in json.dumps(body).split("#/components/schemas/")[1:]:
            assert name.split('"')[0] in schemas
