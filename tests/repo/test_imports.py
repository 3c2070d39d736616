"""What starting a program costs: nothing heavy is imported before it is needed."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {
    "cryptography", "git", "jinja2", "mlx", "mlx_lm", "numpy", "pydantic", "requests", "rich", "securesystemslib",
    "starlette", "uvicorn",
}  # fmt: skip
SCRIPT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(list(sys.modules)))
"""

# Imports all modules of a package.
ALL = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps(list(sys.modules)))
"""


def loaded_by(script, package, folder):
    """Return the modules that a program loads, outside the repository."""
    # -P: from the folder of another checkout, `bridge` would be that one.
    argv = [sys.executable, "-P", "-c", script, package]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", ["bridge.cli", "runner.cli", "engine.cli"])
def test_command_line_imports_nothing_heavy(module, tmp_path):
    imported = loaded_by(SCRIPT, module, tmp_path)
    assert {name.split(".")[0] for name in imported} & HEAVY == set()
    assert "importlib.metadata" not in imported


@pytest.mark.parametrize("package", ["bridge.common", "bridge.reports"])
def test_what_all_programs_share_loads_neither_mlx_nor_git(package, tmp_path):
    imported = loaded_by(ALL, package, tmp_path)
    assert package in imported
    assert {name.split(".")[0] for name in imported} & {
        "engine",
        "git",
        "mlx",
        "mlx_lm",
        "numpy",
        "runner",
    } == set()
    others = [name for name in imported if name.startswith("bridge.")]
    assert [name for name in others if not name.startswith(("bridge.common", "bridge.reports"))] == []


@pytest.mark.parametrize("script", sorted(ROOT.glob("benchmarks/*.py")), ids=lambda script: script.stem)
def test_what_a_benchmark_imports_of_the_product_is_there(script):
    """mypy does not check them, and no other test runs most of them."""
    imports = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").split(".")[0] in {"bridge", "runner", "engine"}]
    for node in ours:
        if node.module.startswith("engine.torch"):
            pytest.importorskip("torch", reason="the backend of torch is measured with it")
        module = importlib.import_module(node.module)
        for alias in node.names:
            if not hasattr(module, alias.name):
                importlib.import_module(f"{node.module}.{alias.name}")
