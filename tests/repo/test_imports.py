"""What starting a program costs: nothing heavy is imported before it is needed."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "cryptography", "git", "jinja2", "mlx", "mlx_lm", "numpy", "pydantic", "requests", "rich", "securesystemslib",
    "starlette", "uvicorn",
}  # fmt: skip
SCRIPT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(list(sys.modules)))
"""


@pytest.mark.parametrize("module", ["bridge.cli", "runner.cli", "engine.cli"])
def test_command_line_imports_nothing_heavy(module, tmp_path):
    # -P: from the folder of another checkout, `bridge` would be that one.
    argv = [sys.executable, "-P", "-c", SCRIPT, module]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert imported & HEAVY == set()
    assert "importlib.metadata" not in json.loads(done.stdout)
