"""A preset's declaration of kinds of its own: each mistake is found when it is read, and its place is named."""

from __future__ import annotations

import pytest
import yaml

from bridge.presets import load_presets
from bridge.reports.own import dump_kinds, read_kinds
from bridge.reports.own.schema import pattern_fault

CLAIM = {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"}
BODY = {
    "name": "job", "description": "A job.", "code": "installed", "timeout_s": 60, "gate": "mine",
    "steps": [{"argv": ["/bin/true"]}], "collect": ["results/research/x.json"],
}  # fmt: skip


def read(tmp_path, kinds, **changes):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(BODY | {"reports": kinds} | changes))
    return load_presets(tmp_path)


def mistake(tmp_path, kinds, **changes):
    return read(tmp_path, kinds, **changes).broken["job"].message


def claim(**changes):
    return {"mine": {"schema": {"type": "object"}, "claims": [CLAIM | changes]}}


def schema(**keywords):
    return {"mine": {"schema": keywords}}


@pytest.mark.parametrize("gate", ["mine", ["mine"], "reports"])
def test_a_declared_kind_can_be_the_gate_and_travels_unchanged(tmp_path, gate):
    preset = read(tmp_path, claim(derive="ratio", against="/other", min_samples=3), gate=gate)["job"]

    assert preset.kinds == ([] if gate == "reports" else ["mine"])
    assert read_kinds(dump_kinds(preset.reports)) == preset.reports


@pytest.mark.parametrize(
    ("kinds", "place", "words"),
    [
        (claim(pointr="/x"), "reports.mine.claims.0.pointr", "did you mean pointer?"),
        (claim(better="Lower"), "reports.mine.claims.0.better", "did you mean lower?"),
        (claim(derive="medain"), "reports.mine.claims.0.derive", "did you mean median?"),
        (claim(pointer="wall_s"), "reports.mine.claims.0.pointer", "must begin with /"),
        (claim(samples="/a~2"), "reports.mine.claims.0.samples", "must write ~ as ~0"),
        (claim(min_samples=0), "reports.mine.claims.0.min_samples", "1"),
        (claim(name="wall s"), "reports.mine.claims.0.name", ""),
        (claim(derive="ratio"), "reports.mine.claims.0", "needs `against`"),
        (claim(against="/x"), "reports.mine.claims.0", "needs `against`"),
        (claim(samples=None, min_samples=3), "reports.mine.claims.0", "needs `samples`"),
        ({"mine": {"schema": {}, "claims": [CLAIM, CLAIM]}}, "reports.mine", "two claims are called wall_s"),
        ({"mine": {"shema": {}}}, "reports.mine.shema", "did you mean schema?"),
        ({"mine": {"schema": {}}, "kakeya.mine": {"schema": {}}}, "reports", "of the bridge's own"),
        ({"mine": {"schema": {}}, "Mine": {"schema": {}}}, "reports", "lower-case letters"),
        (schema(requird=["a"]), "reports.mine.schema", "/requird: is not a keyword"),
        (schema(requird=["a"]), "reports.mine.schema", "(did you mean required?)"),
        (schema(properties={"a": {"format": "date"}}), "reports.mine.schema", "/properties/a/format: is not a keyword"),
        (schema(type="objekt"), "reports.mine.schema", "/type"),
        (schema(minimum="1"), "reports.mine.schema", "/minimum: must be of type number"),
        (schema(properties={"a": 1}), "reports.mine.schema", "/properties/a: must be a schema"),
        (schema(maximum=2**60), "reports.mine.schema", "2^53"),
        (schema(maximum=float("nan")), "reports.mine.schema", "must be JSON"),
        (schema(const=[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]), "reports.mine.schema", "too large"),
        (schema(enum=["x" * 100] * 300), "reports.mine.schema", "larger than 24 KiB"),
        (schema(**{"$ref": "#/$defs/sampel", "$defs": {"sample": {}}}), "schema", "did you mean #/$defs/sample?"),
        (schema(**{"$schema": "http://json-schema.org/draft-07/schema#"}), "schema", "$schema must be"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_its_place(tmp_path, kinds, place, words):
    message = mistake(tmp_path, kinds)

    assert place in message
    assert words in message
    assert len(message) < 600


@pytest.mark.parametrize("gate", ["none", "kakeya.recall", ["kakeya.recall"]])
def test_a_declared_kind_must_be_judged(tmp_path, gate):
    assert "gate must name the declared kind 'mine'" in mistake(tmp_path, schema(), gate=gate)


def test_a_gate_gets_the_declared_name(tmp_path):
    assert "(did you mean mine?)" in mistake(tmp_path, schema(), gate="mien")


@pytest.mark.parametrize(
    "ref", ["https://example.invalid/s.json", "other.json", "file:///etc/passwd", "#/$defs/none"]
)
def test_row_151_nothing_is_read_from_elsewhere(tmp_path, ref):
    message = mistake(tmp_path, {"mine": {"schema": {"properties": {"a": {"$ref": ref}}}}})

    assert "/properties/a: $ref" in message


@pytest.mark.parametrize(
    "keyword", ["$id", "$anchor", "$dynamicRef", "$vocabulary", "patternProperties", "unevaluatedItems"]
)
def test_row_151_keywords_that_cannot_be_bounded_are_refused(tmp_path, keyword):
    assert f"/{keyword}: is not a keyword" in mistake(tmp_path, {"mine": {"schema": {keyword: "x"}}})


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*", "(a|b)+c", "(ab){2,}", "a*a*a*b", "a?" * 30, "(?:a|b)" * 20, r"(a)\1", "(?=a)", "(", "a" * 201,
        "a{1,200}" * 4,
    ],
)  # fmt: skip
def test_row_151_patterns_that_can_take_long_are_refused(tmp_path, pattern):
    assert pattern_fault(pattern)
    assert "the pattern" in mistake(tmp_path, schema(pattern=pattern))


@pytest.mark.parametrize(
    "pattern", ["^[0-9a-f]{64}$", r"^\d{4}-\d\d-\d\dT.*Z$", "^(gcc|clang)(-[0-9]+)?$", r"^[(*+)]\(x\)$"]
)
def test_patterns_of_everyday_are_allowed(tmp_path, pattern):
    assert read(tmp_path, schema(pattern=pattern))["job"]
