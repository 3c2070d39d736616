"""Rules about recall and about what was put in place of keys and values: it must be shown that it was read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.evidence.kinds import Layer
from bridge.evidence.names import RECALLS
from bridge.evidence.parts import Arm, Prompt
from bridge.evidence.rules_output import diverging
from bridge.evidence.stats import median
from bridge.evidence.view import View, where_of

# Noise that leaves more than a quarter of the needles is not where the attention reads.
SURVIVES = 0.25

# A control runs on this many prompts, or on all.
CONTROL_PROMPTS = 5

_SHORTEST = 4
_COUNTER = "injected_positions"

# mlx-lm's caches of keys and values as they come.
_HOLDERS = ("KVCache", "RotatingKVCache")


def recall_vacuous(view: View) -> Iterator[str]:
    """The answer can be had from the prompt alone."""
    about = {(claim.arm, where_of(claim)): claim for claim in reversed([*view.named(*RECALLS)])}
    for claim in reversed([*about.values()]):
        prompts = [view.prompts[prompt] for prompt in view.wanted(claim)]
        told = _codes(prompts)
        for prompt in prompts:
            odd = _vacuous(view, prompt)
            if odd:
                yield f"{claim.name}: prompt {prompt.id} {odd}"
            for row in view.decodes(claim.arm, prompt.id):
                held = {code for code in _held(row.text, told) if code not in (prompt.text or "")}
                if len(held) > 1:
                    yield f"{claim.name}: {claim.arm} answers {prompt.id} with the answers of other prompts too"
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


def _vacuous(view: View, prompt: Prompt) -> str | None:
    expected = (prompt.expected or "").strip()
    if len(expected) < _SHORTEST:
        return f"expects {prompt.expected!r}"
    told = view.workloads.get(prompt.workload)
    if told and (expected in told.shared_prefix or expected in told.shared_suffix):
        return "has its answer in what all prompts share"
    if prompt.text is not None and expected not in prompt.text:
        return "does not hold its answer"
    if prompt.text is not None and not re.search(rf"(?<![\w-]){re.escape(expected)}(?![\w-])", prompt.text):
        return f"holds {expected!r} within another word alone"
    return None


def row_contradicts(view: View) -> Iterator[str]:
    """The same tokens are the same text."""
    texts: dict[tuple[int, ...], str] = {}
    for i, row in enumerate(view.rows):
        known = texts.setdefault(tuple(row.tokens), row.text)
        if known != row.text:
            yield f"row {i}: its tokens are {known[:60]!r} elsewhere, and {row.text[:60]!r} here"


def recall_scope(view: View) -> Iterator[str]:
    """The arm ran on all that the claim is about."""
    for claim in view.named("recall"):
        lacks = sorted(set(view.wanted(claim)) - set(view.common(claim)))
        if lacks:
            yield f"recall of {claim.arm} is claimed of prompts that it did not run on, {lacks[0]} among them"


def poison_missing(view: View) -> Iterator[str]:
    """Noise was tried."""
    yield from _control_missing(view, "poison")


def identity_missing(view: View) -> Iterator[str]:
    """So was what had been there."""
    yield from _control_missing(view, "identity")


def evicted_missing(view: View) -> Iterator[str]:
    """And nothing at all."""
    yield from _control_missing(view, "evicted")


def _control_missing(view: View, role: str) -> Iterator[str]:
    if not [*view.named(*RECALLS)]:
        return
    ran = {p for arm in view.arms_of(role) for p in view.measured.get(arm.name, {})}
    candidates = {p for arm in view.arms_of("candidate") for p in view.measured.get(arm.name, {})}
    least = min(CONTROL_PROMPTS, len(candidates))
    if len(ran & candidates) < least:
        yield f"{role} ran on {len(ran & candidates)} of the candidate's prompts; {least} are the least"


def poison_survives(view: View) -> Iterator[str]:
    """Noise destroys recall."""
    yield from _control_survives(view, "poison")


def evicted_survives(view: View) -> Iterator[str]:
    """So does nothing."""
    yield from _control_survives(view, "evicted")


def _control_survives(view: View, role: str) -> Iterator[str]:
    for arm in view.arms_of(role):
        recall = view.recall(arm.name)
        if recall > SURVIVES:
            yield f"{arm.name} finds {recall:.0%} of the needles"


def identity_broken(view: View) -> Iterator[str]:
    """What had been there gives the same tokens."""
    for arm in view.arms_of("identity"):
        if arm.oracle is None:
            yield f"{arm.name} names no oracle to be identical with"
        yield from diverging(view, arm)


def liveness_missing(view: View) -> Iterator[str]:
    """Injected positions are counted."""
    for arm in _injecting(view):
        if any(_COUNTER not in row.counters for row in view.all_decodes(arm.name)):
            yield f"rows of {arm.name} do not count {_COUNTER}"


def injection_never_ran(view: View) -> Iterator[str]:
    """They are as many as the poison's, or nearly."""
    poison = [arm.name for arm in view.arms_of("poison")]
    for arm in _injecting(view):
        for prompt in view.measured.get(arm.name, {}):
            if view.report.kind == "kakeya.recall" and arm.role not in ("poison", "identity"):
                yield from _untold(view, arm, prompt)
            counts = _counts(view, arm.name, prompt)
            noise = [count for name in poison for count in _counts(view, name, prompt)]
            share = 1.0 if arm.role in ("poison", "identity") else covered(view, arm, prompt)
            least = max(1.0, share * median(noise) / 2 if noise else 0)
            if counts and min(counts) < least:
                yield f"{arm.name} on {prompt} put {min(counts)} positions in place; {least:g} are the least"


def _untold(view: View, arm: Arm, prompt: str) -> Iterator[str]:
    raw, _ = _left_raw(view, arm, prompt)
    if raw != (arm.options.get("raw_layers") or []):
        yield f"{arm.name} leaves layers {raw} of {prompt} raw, and says {arm.options.get('raw_layers') or 'of none'}"


def covered(view: View, arm: Arm, prompt: str) -> float:
    """Return the share of a cache's layers in which it is held to put something in place: those that it says."""
    raw, holders = _left_raw(view, arm, prompt)
    return 1 - len(raw) / len(holders) if raw and raw == arm.options.get("raw_layers") else 1.0


def _left_raw(view: View, arm: Arm, prompt: str) -> tuple[list[int], list[int]]:
    """Return the layers whose arrays are of the raw cache's kind in all of an arm's rows, and those that could be."""
    ours = [row.memory.layers for row in view.decodes(arm.name, prompt) if row.memory]
    base = next(
        (
            row.memory.layers for plain in view.arms_of("baseline") if plain.cache == "raw"
            for row in view.decodes(plain.name, prompt) if row.memory
        ), [],
    )  # fmt: skip
    holders = [i for i, layer in enumerate(base) if layer.kind in _HOLDERS]
    whole = [layers for layers in ours if len(layers) == len(base)]
    raw = [i for i in holders if whole and all(_alike(layers[i], base[i]) for layers in whole)]
    return raw, holders


def _alike(one: Layer, other: Layer) -> bool:
    return one.kind == other.kind and [a.dtype for a in one.arrays] == [a.dtype for a in other.arrays]


def _injecting(view: View) -> list[Arm]:
    """Return the arms that put something in place, whatever they are called: not those that keep the raw cache."""
    always = view.report.kind == "kakeya.restored-prefill"
    return [
        arm
        for arm in view.all_arms
        if arm.role in ("poison", "identity") or arm.cache != "raw" or (always and arm.role == "candidate")
    ]


def _counts(view: View, arm: str, prompt: str) -> list[int]:
    rows = view.decodes(arm, prompt)
    return [row.counters[_COUNTER] for row in rows if _COUNTER in row.counters]
