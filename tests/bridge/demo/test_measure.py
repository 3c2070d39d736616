"""``kakeya measure``: a job on this machine, without a bus of one's own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="needs the engine"),
]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_job_that_is_refused_is_refused_for_a_reason(tmp_path, form):
    model = f"KAKEYA_MAC_VERIFIER_PATH={tmp_path / 'no-model'}"
    argv = ["measure", "k3-native-baseline", "--env", model, "--out", "out", "--key-folder", "key"]
    argv += ["--json"] if form == "json" else []

    ran = subprocess.run(
        [sys.executable, "-P", "-m", "bridge", *argv],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert ran.returncode == 4
    reason = json.loads(ran.stdout)["reason"]["message"] if form == "json" else ran.stderr
    assert "no-model" in reason
    assert "cannot be loaded" in reason
