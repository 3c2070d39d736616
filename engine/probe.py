"""Checks whether this machine can run the engine: facts and problems.

It also works without MLX, whose absence is then the reported problem.
"""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.common import host, install
from engine import blas, blas_speed
from engine.errors import EngineError

SLOW_GFLOPS = 30.0


@dataclass(frozen=True)
class Problem:
    """A missing or wrong part: what it is, the evidence, and what to do about it."""

    what: str
    why: str
    fix: str


@dataclass
class Probe:
    """What was found."""

    facts: dict[str, Any] = field(default_factory=dict)  # plain data by section
    problems: list[Problem] = field(default_factory=list)  # the engine cannot work with any of these
    warnings: list[Problem] = field(default_factory=list)  # the engine works, but worse than it could

    @property
    def healthy(self) -> bool:
        """Whether the engine can run here."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "healthy": self.healthy,
            **self.facts,
            "problems": [vars(problem) for problem in self.problems],
            "warnings": [vars(warning) for warning in self.warnings],
        }


def probe() -> Probe:
    """Examine the machine, MLX and mlx-lm, and let them compute something with a known result."""
    result = Probe()
    result.facts = {
        "host": platform.node(),
        "platform": f"{platform.system()} {platform.machine()}",
        "os": host.system(),
        "chip": host.chip(),
        "cores": host.cores(),
        "memory_bytes": host.memory_bytes(),
        "python_executable": sys.executable,
        "versions": host.versions(),
        "blas_preload": vars(blas.preload()),
    }
    if _attempt(result, "MLX", "mlx", _look_at_mlx):
        _attempt(result, "mlx-lm", "mlx-lm", _look_at_mlx_lm)
    return result


def _attempt(result: Probe, name: str, package: str, look: Callable[[Probe], None]) -> bool:
    """Run one examination; any failure becomes a problem. Returns whether it succeeded."""
    before = len(result.problems)
    try:
        look(result)
    except EngineError as error:
        absent = host.version(package) is None
        message = f"{name} is not installed" if absent else f"{name} cannot be loaded"
        result.problems.append(Problem(message, error.message, f"install it {install.how()}"))
    except Exception as error:  # noqa: BLE001 - any error of a foreign library is the result
        reason = f"{type(error).__name__}: {error}".strip()
        message = f"{name} is installed but does not work"
        result.problems.append(
            Problem(message, reason, f"uninstall {package}, and install it again {install.how()}")
        )
    return len(result.problems) == before


def _look_at_mlx(result: Probe) -> None:
    from engine import known_answers
    from engine.mx import mx

    result.facts["device"] = host.device_name(mx.default_device())
    result.facts["backends"] = {
        "metal": bool(mx.metal.is_available()),
        "cuda": bool(hasattr(mx, "cuda") and mx.cuda.is_available()),
        "cpu": True,
    }
    result.facts["ring"] = bool(mx.distributed.is_available("ring"))
    result.facts["check"] = known_answers.check()
    bound = blas_speed.in_use()
    result.facts["blas"] = bound.as_dict()
    if not result.facts["check"]["ok"]:
        raise ArithmeticError(f"a small computation came out wrong: {result.facts['check']}")
    if sys.platform == "linux" and result.facts["device"] == "cpu" and (bound.gflops or 0) < SLOW_GFLOPS:
        reason = f"MLX computes float32 products with {bound.name} BLAS at {bound.gflops} GFLOP/s"
        result.warnings.append(Problem("slow matrix products", reason, _faster(bound)))


def _faster(bound: blas.Blas) -> str:
    """Return how to make matrix products faster, by the cause of the slowness."""
    if bound.name == "openblas":
        return "let more of the machine's processors work for it: OPENBLAS_NUM_THREADS, or less other load"
    if not blas.preload().tried:
        return f"unset {blas.VARIABLE}"
    return f"the engine's extra brings OpenBLAS; install it {install.how()}"


def _look_at_mlx_lm(result: Probe) -> None:
    from engine.lm import cache
    from engine.mx import mx

    stored = cache.KVCache()
    keys, _ = stored.update_and_fetch(mx.ones((1, 2, 3, 8)), mx.ones((1, 2, 3, 8)))
    if keys.shape != (1, 2, 3, 8) or stored.offset != keys.shape[2]:
        raise ArithmeticError(f"a cache of three tokens has shape {keys.shape} and offset {stored.offset}")
    result.facts["mlx_lm_cache"] = {"ok": True}
