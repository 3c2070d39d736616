"""The engine's self-check for ``kakeya doctor`` and ``kakeya-runner check``: run as a process, never imported."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.checklist import Check
from bridge.common import install
from bridge.errors import ProcessError, one_line
from bridge.system.process import run

_TIMEOUT_S = 120
_FAST = ("openblas", "accelerate")


def engine(python: str | Path, env: Mapping[str, str], *, required: bool = False) -> Check:
    """Return whether the engine works under an interpreter, with which BLAS, and how fast that is.

    The check fails only for a ``required`` engine that does not work. An engine that does not answer may just be slow.
    """
    argv = (str(python), "-P", "-m", "engine", "probe", "--json")
    see = f"See why: {python} -P -m engine probe"
    try:
        facts = json.loads(run(*argv, env=env, cwd="/", timeout=_TIMEOUT_S, check=False).stdout)
        if facts["healthy"]:
            return _works(facts, python)
        problem = facts["problems"][0]
        message = one_line(f"MLX is not usable: {problem['what']} ({problem['why']})")
    except (ProcessError, ValueError, LookupError, TypeError):
        return Check("engine", ok=None, message=f"{python} cannot run the engine's probe", fix=see)
    return Check("engine", ok=False if required else None, message=message, fix=see)


def _works(facts: dict[str, Any], python: str | Path) -> Check:
    device, blas = facts["device"], facts.get("blas", {})
    at = f" at {blas['library']}" if blas.get("library") else ""
    mlx, name = facts["versions"]["mlx"], blas.get("name")
    message = f"MLX {mlx} on {device}, BLAS {name}, {blas.get('gflops')} GFLOP/s{at}"
    if device != "cpu" or name in _FAST:
        return Check("engine", ok=True, message=message)
    if not facts["blas_preload"]["tried"]:
        fix = "A fast BLAS is not loaded because KAKEYA_OPENBLAS is off: unset it."
    else:
        fix = f"The engine's extra brings a fast BLAS. {install.engine(python=python)}"
    return Check("engine", ok=None, message=message, fix=fix)
