"""Rules about recall and injected keys and values: controls must show that the model reads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from bridge.evidence.names import NEARNESS, RECALLS
from bridge.evidence.parts import Arm, Prompt
from bridge.evidence.report_index import ReportIndex, where_of
from bridge.evidence.rows import Layer
from bridge.evidence.rule import rule
from bridge.evidence.rules_output import diverging
from bridge.evidence.rules_restored import unmoved
from bridge.evidence.stats import median

# If noise leaves more than this share of the needles, attention does not read the replaced positions.
SURVIVES = 0.25

# A control runs on this many prompts, or on all.
CONTROL_PROMPTS = 5

_SHORTEST = 4
_COUNTER = "injected_positions"

# mlx-lm's caches of keys and values as they come.
_HOLDERS = ("KVCache", "RotatingKVCache")


@rule("RECALL_VACUOUS")
def recall_vacuous(index: ReportIndex) -> Iterator[str]:
    """The answer must be found in the prompt only, and must differ between prompts."""
    about = {(claim.arm, where_of(claim)): claim for claim in reversed([*index.named(*RECALLS)])}
    for claim in reversed([*about.values()]):
        prompts = [index.prompts[prompt] for prompt in index.wanted(claim)]
        told = _codes(prompts)
        for prompt in prompts:
            odd = _vacuous(index, prompt)
            if odd:
                yield f"{claim.name}: prompt {prompt.id} {odd}"
            for row in index.decodes(claim.arm, prompt.id):
                held = {code for code in _held(row.text, told) if code not in (prompt.text or "")}
                if len(held) > 1:
                    yield f"{claim.name}: the answer of {claim.arm} to {prompt.id} holds answers to other prompts too"
        if len(prompts) > 1 and len({prompt.expected for prompt in prompts}) == 1:
            yield f"{claim.name}: all {len(prompts)} prompts expect the same answer"


def _codes(prompts: list[Prompt]) -> dict[int, set[str]]:
    """Return the answers of prompts by their lengths."""
    found: dict[int, set[str]] = {}
    for prompt in prompts:
        if prompt.expected:
            found.setdefault(len(prompt.expected), set()).add(prompt.expected)
    return found


def _held(text: str, codes: dict[int, set[str]]) -> Iterator[str]:
    """Yield the codes that a text holds: one look at each place for each length, however many codes there are."""
    for length, known in codes.items():
        for start in range(len(text) - length + 1):
            if text[start : start + length] in known:
                yield text[start : start + length]


def _vacuous(index: ReportIndex, prompt: Prompt) -> str | None:
    expected = (prompt.expected or "").strip()
    if len(expected) < _SHORTEST:
        return f"expects {prompt.expected!r}"
    told = index.workloads.get(prompt.workload)
    counted = index.once(("workloads",), lambda: Counter(other.workload for other in index.all_prompts))
    alone = counted[prompt.workload] == 1  # it shares all with itself
    if told and not alone and (expected in told.shared_prefix or expected in told.shared_suffix):
        return "has its answer in the text that all prompts share"
    if prompt.text is not None and expected not in prompt.text:
        return "does not hold its answer"
    if prompt.text is not None and not re.search(rf"(?<![\w-]){re.escape(expected)}(?![\w-])", prompt.text):
        return f"holds {expected!r} only within another word"
    return None


@rule("ROW_CONTRADICTS")
def row_contradicts(index: ReportIndex) -> Iterator[str]:
    """The same tokens must be the same text."""
    texts: dict[tuple[int, ...], str] = {}
    for i, row in enumerate(index.rows):
        known = texts.setdefault(tuple(row.tokens), row.text)
        if known != row.text:
            yield f"row {i}: its tokens are {known[:60]!r} elsewhere, and {row.text[:60]!r} here"


@rule("RECALL_SCOPE")
def recall_scope(index: ReportIndex) -> Iterator[str]:
    """The arm must have run on every prompt of the claim."""
    for claim in index.named("recall"):
        lacks = sorted(set(index.wanted(claim)) - set(index.common(claim)))
        if lacks:
            yield f"recall of {claim.arm} is claimed for prompts on which it did not run, such as {lacks[0]}"


@rule("POISON_MISSING")
def poison_missing(index: ReportIndex) -> Iterator[str]:
    """An arm with noise in place of keys and values must have run."""
    yield from _control_missing(index, "poison")


@rule("IDENTITY_MISSING")
def identity_missing(index: ReportIndex) -> Iterator[str]:
    """An arm that puts back what was there must have run."""
    yield from _control_missing(index, "identity")


@rule("EVICTED_MISSING")
def evicted_missing(index: ReportIndex) -> Iterator[str]:
    """An arm that puts nothing back must have run."""
    yield from _control_missing(index, "evicted")


def _control_missing(index: ReportIndex, role: str) -> Iterator[str]:
    if not index.restores_sliding and not [*index.named(*RECALLS, NEARNESS)]:
        return
    ran = {p for arm in index.arms_of(role) for p in _shown(index, arm.name)}
    candidates = {p for arm in index.arms_of("candidate") for p in index.measured.get(arm.name, {})}
    least = min(CONTROL_PROMPTS, len(candidates))
    if len(ran & candidates) < least:
        yield f"the control {role} ran on {len(ran & candidates)} of the candidate's prompts; {least} are needed"


def _shown(index: ReportIndex, arm: str) -> set[str]:
    """Return the prompts on which an arm ran; of restored sliding layers, predictions alone show anything."""
    ran = index.measured.get(arm, {})
    return {
        p for p in ran if not index.restores_sliding or any(row.prediction for row in index.decodes(arm, p))
    }


@rule("POISON_SURVIVES")
def poison_survives(index: ReportIndex) -> Iterator[str]:
    """Noise in place of keys and values must destroy recall; in sliding layers, it must move predictions."""
    yield from _control_survives(index, "poison")


@rule("EVICTED_SURVIVES")
def evicted_survives(index: ReportIndex) -> Iterator[str]:
    """Putting nothing back must destroy recall; in sliding layers, it must move predictions."""
    yield from _control_survives(index, "evicted")


def _control_survives(index: ReportIndex, role: str) -> Iterator[str]:
    for arm in index.arms_of(role) if index.restores_sliding else ():
        yield from unmoved(index, arm)
    if index.restores_sliding and not [*index.named(*RECALLS)]:
        return  # layers that keep everything find needles alone
    for arm in index.arms_of(role):
        recall = index.recall(arm.name)
        if recall > SURVIVES:
            yield f"the control {arm.name} finds {recall:.0%} of the needles; at most {SURVIVES:.0%} are allowed"


@rule("IDENTITY_BROKEN")
def identity_broken(index: ReportIndex) -> Iterator[str]:
    """Putting back what was there must give the oracle's tokens."""
    for arm in index.arms_of("identity"):
        if arm.oracle is None:
            yield f"the arm {arm.name} names no oracle"
        yield from diverging(index, arm)


@rule("LIVENESS_MISSING")
def liveness_missing(index: ReportIndex) -> Iterator[str]:
    """Every row of an arm that injects must count its injected positions."""
    for arm in _injecting(index):
        if any(_COUNTER not in row.counters for row in index.all_decodes(arm.name)):
            yield f"a row of {arm.name} has no counter {_COUNTER}"


@rule("INJECTION_NEVER_RAN")
def injection_never_ran(index: ReportIndex) -> Iterator[str]:
    """An arm must inject at least half as many positions as the poison arm."""
    poison = [arm.name for arm in index.arms_of("poison")]
    for arm in _injecting(index):
        for prompt in index.measured.get(arm.name, {}):
            if index.report.kind == "kakeya.recall" and arm.role not in ("poison", "identity"):
                yield from _untold(index, arm, prompt)
            counts = _counts(index, arm.name, prompt)
            noise = [count for name in poison for count in _counts(index, name, prompt)]
            share = 1.0 if arm.role in ("poison", "identity") else covered(index, arm, prompt)
            least = max(1.0, share * median(noise) / 2 if noise else 0)
            if counts and min(counts) < least:
                yield f"{arm.name} on {prompt} injected {min(counts)} positions; at least {least:g} are needed"


def _untold(index: ReportIndex, arm: Arm, prompt: str) -> Iterator[str]:
    raw, _ = _left_raw(index, arm, prompt)
    if raw != (arm.options.get("raw_layers") or []):
        yield f"{arm.name} leaves layers {raw} of {prompt} raw; raw_layers says {arm.options.get('raw_layers') or []}"


def covered(index: ReportIndex, arm: Arm, prompt: str) -> float:
    """Return the share of a cache's layers in which it is held to put something in place: those that it says."""
    raw, holders = _left_raw(index, arm, prompt)
    return 1 - len(raw) / len(holders) if raw and raw == arm.options.get("raw_layers") else 1.0


def _left_raw(index: ReportIndex, arm: Arm, prompt: str) -> tuple[list[int], list[int]]:
    """Return the layers whose arrays are of the raw cache's kind in all of an arm's rows, and those that could be."""
    ours = [row.memory.layers for row in index.decodes(arm.name, prompt) if row.memory]
    base = next(
        (
            row.memory.layers for plain in index.arms_of("baseline") if plain.cache == "raw"
            for row in index.decodes(plain.name, prompt) if row.memory
        ), [],
    )  # fmt: skip
    holders = [i for i, layer in enumerate(base) if layer.kind in _HOLDERS]
    whole = [layers for layers in ours if len(layers) == len(base)]
    raw = [i for i in holders if whole and all(_alike(layers[i], base[i]) for layers in whole)]
    return raw, holders


def _alike(one: Layer, other: Layer) -> bool:
    return one.kind == other.kind and [a.dtype for a in one.arrays] == [a.dtype for a in other.arrays]


def _injecting(index: ReportIndex) -> list[Arm]:
    """Return the arms that put something in place, whatever they are called: not those that keep the raw cache."""
    always = index.report.kind == "kakeya.restored-prefill"
    return [
        arm
        for arm in index.all_arms
        if arm.role in ("poison", "identity") or arm.cache != "raw" or (always and arm.role == "candidate")
    ]


def _counts(index: ReportIndex, arm: str, prompt: str) -> list[int]:
    rows = index.decodes(arm, prompt)
    return [row.counters[_COUNTER] for row in rows if _COUNTER in row.counters]
