"""The engine's self-check for ``kakeya doctor`` and ``kakeya-runner check``: run as a process, never imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bridge.checks import Check
from bridge.common import install
from bridge.errors import ProcessError, one_line
from bridge.system.process import run

_TIMEOUT_S = 120
_FAST = ("openblas", "accelerate")


def engine(python: str | Path, env: Mapping[str, str], *, required: bool = False) -> Check:
    """Return whether the engine works under an interpreter, with which BLAS, and how fast that is.

    Only an engine that is ``required`` and does not work fails the check: one that gives no answer may just be slow.
    """
    argv = (str(python), "-P", "-m", "engine", "probe", "--json")
    see = f"See why: {python} -P -m engine probe"
    try:
        facts = json.loads(run(*argv, env=env, cwd="/", timeout=_TIMEOUT_S, check=False).stdout)
    except (ProcessError, ValueError):
        return Check("engine", ok=None, message=f"{python} cannot run the engine's probe", fix=see)
    if not isinstance(facts, dict) or not facts.get("healthy"):
        return Check("engine", ok=False if required else None, message=_problem(facts), fix=see)
    return _works(facts, python)


def _works(facts: dict[str, object], python: str | Path) -> Check:
    versions, blas = _table(facts, "versions"), _table(facts, "blas")
    name, library = blas.get("name"), blas.get("library")
    at = f" at {library}" if library else ""
    message = (
        f"MLX {versions.get('mlx')} on {facts.get('device')}, BLAS {name}, {blas.get('gflops')} GFLOP/s{at}"
    )
    if facts.get("device") != "cpu" or name in _FAST:
        return Check("engine", ok=True, message=message)
    if not _table(facts, "blas_preload").get("tried"):
        fix = "A fast BLAS is not loaded because KAKEYA_OPENBLAS is off: unset it."
    else:
        fix = f"The engine's extra brings a fast BLAS. {install.engine(python=python)}"
    return Check("engine", ok=None, message=message, fix=fix)


def _problem(facts: object) -> str:
    problems = facts.get("problems") if isinstance(facts, dict) else None
    first = problems[0] if isinstance(problems, list) and problems else None
    if not isinstance(first, dict):
        return "MLX is not usable"
    return one_line(f"MLX is not usable: {first.get('what')} ({first.get('why')})")


def _table(facts: dict[str, object], name: str) -> dict[str, object]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}
