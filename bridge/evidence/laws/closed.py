"""Laws of closed lists: places where a report could say anything hold only what the engine writes there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.evidence.laws.configured import option
from bridge.evidence.laws.law import ALL, CODEC, FOUND, MODELLED, PROMPTED, QUANT, SPEC, law
from bridge.evidence.report_index import ReportIndex

VERSIONS = {"python", "mlx", "mlx_lm", "numpy", "kakeya_bridge"}
BLAS = {"name", "library", "gflops"}
POWER = {"plugged", "percent", "low_power"}
_BLAS = re.compile(r"[a-z]{1,20}")
# Its folder may have any name.
_LIBRARY = re.compile(r"(?:[^\n]*/)?[\w.+-]{1,120}")
_VERSION = re.compile(r"v?\d+[0-9A-Za-z]*(?:[.+!-][0-9A-Za-z]+)*")
_QUANTIZATION = re.compile(r"[a-z0-9_]{1,20}@(?:\d{1,2}|None)g(?:\d{1,4}|None)")
# The ranges of the engine's options: fewer or other vectors cannot be asked for.
# What the engine calls the arm of a trained restorer; it is tried wherever a model has one.
LEARNED = "restored learned"
VECTORS, SIZES = 64, (64, 80, 96, 112, 128, 256, 512)


@law(
    "STRAY_FIELD", ALL, "identity.versions identity.blas identity.power",
    "a machine is described by the versions, libraries and supply that the engine asks for, and by nothing else",
)  # fmt: skip
def known_facts_of_the_machine(index: ReportIndex) -> Iterator[str]:
    identity = index.report.identity
    for name, known in (("versions", VERSIONS), ("blas", BLAS), ("power", POWER)):
        odd = sorted({*getattr(identity, name)} - known)
        if odd:
            yield f"identity.{name} has a field {odd[0][:60]!r}, which the gate does not know"
    for name, form in (("name", _BLAS), ("library", _LIBRARY)):
        told = identity.blas.get(name)
        if told and not (isinstance(told, str) and form.fullmatch(told)):
            yield f"identity.blas.{name} is {str(told)[:60]!r}"
    for name in ("plugged", "low_power"):
        if not isinstance(identity.power.get(name, False), bool | None):
            yield f"identity.power.{name} is {str(identity.power[name])[:60]!r}"


@law(
    "NOT_COVERED", (*SPEC, *FOUND, *QUANT),
    "config.left_out config.caches config.drafters config.rollbacks config.layers models.role",
    "only what was configured can be left out, or a restorer that was made for other layers",
)  # fmt: skip
def configured_and_left_out(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    left, caches = option(config, "left_out"), option(config, "caches")
    drafters = option(config, "drafters")
    asked = caches if isinstance(caches, list) else drafters
    if not isinstance(left, dict) or not isinstance(asked, list):
        return
    names = {*map(str, asked)}
    for name in left:
        told = str(name).split(" ")[-1] if isinstance(caches, list) else str(name).partition("/")[0]
        if told not in names and not _unfit(index, str(name)):
            yield f"{str(name)[:60]} is left out, and was not configured"


def _unfit(index: ReportIndex, name: str) -> bool:
    """Return whether a learned restorer is left out that took part, and was made for the other kind of layers."""
    config = index.report.config
    made_for = {"full": "sliding", "sliding": "full-attention"}.get(str(option(config, "layers")))
    return (
        name == LEARNED
        and any(model.role == "reconstruction" for model in index.report.models)
        and option(config, "left_out")[name] == f"the restorer was made for {made_for} layers"
    )


@law(
    "MEANING_UNKNOWN", PROMPTED, "arms.options.version",
    "the version of an arm's package is a version",
)  # fmt: skip
def versions_of_arms(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        told = arm.options.get("version")
        if told is not None and not (isinstance(told, str) and _VERSION.fullmatch(told)):
            yield f"{arm.name} has the version {str(told)[:60]!r}"


@law(
    "MEANING_UNKNOWN",
    MODELLED,
    "models.quantization",
    "a quantization is a mode with its bits and group size",
)
def known_quantizations(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        if model.quantization and not _QUANTIZATION.fullmatch(model.quantization):
            yield f"{model.id} ({model.role}) has the quantization {model.quantization[:60]!r}"


@law(
    "NOT_COVERED", CODEC, "config.n_vectors config.dim",
    "vectors are drawn in a number and of a size that the engine draws",
)  # fmt: skip
def drawn_vectors(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    count, size = config.get("n_vectors"), config.get("dim")
    if config.get("model"):
        return
    if isinstance(count, int) and count < VECTORS:
        yield f"{count} vectors were drawn; the engine draws {VECTORS} at least"
    if isinstance(size, int) and size not in SIZES:
        yield f"vectors of {size} values were drawn; the engine draws {', '.join(map(str, SIZES))}"
