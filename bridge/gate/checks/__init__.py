"""The gate's checks, in files named after their subjects."""

from types import ModuleType

from bridge.gate.checks import (
    backends,
    baseline,
    codec,
    compare,
    controls,
    form,
    memory,
    outputs,
    ranks,
    samples,
    served,
    solutions,
    timing,
)
from bridge.gate.index import Check

MODULES: tuple[ModuleType, ...] = (
    form, samples, timing, baseline, outputs, controls, memory, codec, served, solutions, backends,
    ranks, compare,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(
    value for module in MODULES for value in vars(module).values() if isinstance(value, Check)
)


def checks_of(kind: str) -> tuple[Check, ...]:
    """Return the checks of a kind of report, in the order in which they are applied."""
    return tuple(each for each in CHECKS if kind in each.kinds)
