"""Everything that the engine writes is declared in the models, and so in the published schema."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.reports.models import MODELS, schema
from bridge.reports.parts import ReportModel
from tests.bridge.gate.reports import all_reduce, compare, distributed

ROOT = Path(__file__).parents[3]
REAL = [
    *sorted((ROOT / "docs/results").glob("*.json")),
    *sorted((ROOT / "tests/bridge/gate/real").glob("*.json.gz")),
]


def undeclared(part: Any, place: str = "") -> Iterator[str]:
    """Yield the places of keys that no model declares. A configuration says itself that it takes further options."""
    if isinstance(part, ReportModel):
        is_open = place == "config"
        yield from (f"{place}.{name}" for name in (part.model_extra or {}) if not is_open)
        for name in type(part).model_fields:
            yield from undeclared(getattr(part, name), f"{place}.{name}".lstrip("."))
    elif isinstance(part, list | tuple | dict):
        for item in part.values() if isinstance(part, dict) else part:
            yield from undeclared(item, place)


def reports() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in REAL:
        report = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        if report.get("kind") in MODELS:
            yield path.name, report
    # No report of these kinds is published.
    for builder in (compare, all_reduce, distributed):
        yield builder.__name__, builder()


@pytest.mark.long
def test_a_real_report_of_each_kind_has_no_undeclared_key():
    kinds = set()
    for name, report in reports():
        found = {*undeclared(MODELS[report["kind"]].model_validate(report))}
        assert not found, name
        kinds.add(report["kind"])
    assert kinds == MODELS.keys()


@pytest.mark.parametrize(
    "place", ["", "identity", "identity.code", "rows.0", "models.0", "rows.0.memory.layers.0"]
)
def test_a_key_that_nobody_declared_is_found(place):
    report = json.loads(gzip.decompress((ROOT / "tests/bridge/gate/real/bench.json.gz").read_bytes()))
    part: Any = report
    for step in filter(None, place.split(".")):
        part = part[int(step) if step.isdigit() else step]
    part["new"] = 1

    found = {*undeclared(MODELS[report["kind"]].model_validate(report))}
    assert len(found) == 1
    assert found.pop().endswith(".new")


def test_the_schema_says_what_a_divergence_and_a_profile_are():
    parts = schema()["$defs"]
    assert parts["Divergence"]["properties"]["kind"]["anyOf"][0]["enum"] == ["tie", "fault", "length"]
    assert {*parts["Profile"]["properties"]} == {"draft_share", "verify_share", "overhead_share"}
