"""Reports of the earlier system, in its schema 2: they stay readable, and are INCOMPLETE at most."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.reports.repetition import repeats_itself
from bridge.reports.statistics import median

SCHEMA_VERSION = 2

# How far a figure may be rounded.
_ROUNDING = 0.005
_ARMS = (("k3_cross_model", "k3_cross_model"), ("oracle_native_ar", "oracle"))


def judge_legacy(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a report of the earlier system, as pairs of code and message."""
    version = report.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        yield "OTHER_VERSION", f"schema_version is {version!r}, not {SCHEMA_VERSION}"
        return
    yield "OLDER_REPORT", "it says nothing about its machine, models and tokens that the gate could judge"
    restored = [sample.get("restoration_active") for sample in _samples(report, "k3_cross_model")]
    ratio = _at(report, "throughput", "cross_model_speedup_vs_oracle_ar")
    recall = _at(report, "gate", "recall_cross_model")
    if True in restored and False in restored:
        count = restored.count(False)
        yield "ROW_CONTRADICTS", f"{restored.count(True)} samples were restored and {count} were not"
    if True not in restored and ratio is not None:
        yield "SELF_COMPARISON", f"a ratio of {ratio:g} is claimed, and no sample was restored"
    if True not in restored and recall is not None:
        yield "CLAIM_NOT_FROM_ROWS", f"recall_cross_model is {recall:g}, and no sample was restored"
    for name, written, computed in _figures(report):
        if written is not None and not abs(written - computed) <= _ROUNDING * abs(computed):
            yield "CLAIM_NOT_FROM_ROWS", f"{name} is {written:g}; the samples give {computed:.4g}"
    texts, oracle = (_list(report, "results", arm, "per_sample_decoded") for _, arm in _ARMS)
    for i, text in enumerate(texts):
        plain = str(oracle[i]) if i < len(oracle) else ""
        if repeats_itself(str(text)) and not repeats_itself(plain):
            yield (
                "OUTPUT_LOOPS",
                f"sample {i} repeats itself, and the oracle's text does not: {str(text)[-40:]!r}",
            )


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float | None, float]]:
    """Yield name, written value and the value that the samples give."""
    rates = [_at(report, "throughput", timed, "tokens_per_second") for timed, _ in _ARMS]
    ratio = "cross_model_speedup_vs_oracle_ar"
    yield ratio, _at(report, "throughput", ratio), _quotient(*rates)
    paces = [median(_paces(report, timed, arm)) for timed, arm in _ARMS]
    yield "decode_only.speedup", _at(report, "throughput", "decode_only", "speedup"), _quotient(*paces)
    for name, arm in (("recall_cross_model", "k3_cross_model"), ("recall_oracle", "oracle")):
        correct = _list(report, "results", arm, "per_sample_correct")
        hits = float(sum(item is True for item in correct))
        yield name, _at(report, "gate", name), _quotient(hits, float(len(correct)))


def _paces(report: Mapping[str, Any], timed: str, arm: str) -> list[float]:
    """Return the decoded tokens per second of each sample; nothing if one is unknown."""
    counts = _list(report, "results", arm, "per_sample_decode_tokens")
    seconds = [_number(sample.get("decode_s")) for sample in _samples(report, timed)]
    if not counts or len(counts) != len(seconds):
        return []
    return [_quotient(_number(count), took) for count, took in zip(counts, seconds, strict=True)]


def _samples(report: Mapping[str, Any], timed: str) -> list[Mapping[str, Any]]:
    return [row for row in _list(report, "throughput", timed, "stage_timings") if isinstance(row, dict)]


def _value(report: Mapping[str, Any], *names: str) -> Any:
    value: Any = report
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(report: Mapping[str, Any], *names: str) -> list[Any]:
    value = _value(report, *names)
    return value if isinstance(value, list) else []


def _at(report: Mapping[str, Any], *names: str) -> float | None:
    return _number(_value(report, *names))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _quotient(a: float | None, b: float | None) -> float:
    return a / b if a is not None and b else math.nan
