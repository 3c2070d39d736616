"""Checks of controls and counters: they show that the model reads what was put into its cache."""

import re
from collections.abc import Iterator

from bridge.gate.checks.outputs import diverging
from bridge.gate.index import ReportIndex, check
from bridge.reports.claims.recall import mean_divergence
from bridge.reports.kinds import KV_QUANT, NEEDLES, RAW, RECALL, RESTORED, SPECULATIVE
from bridge.reports.parts import Arm, Prompt

# If a control leaves more than this share of the needles, attention does not read the replaced positions.
SURVIVES = 0.25
# A control runs on at least this many prompts, or on all if there are fewer.
CONTROL_PROMPTS = 5
# A control must move predictions at least this many times as far as rounding, measured with restored exact values.
_BEYOND_ROUNDING = 4
_SHORTEST_ANSWER = 4
_COUNTER = "injected_positions"


@check("RECALL_VACUOUS", *NEEDLES)
def needles_are_hidden(index: ReportIndex) -> Iterator[str]:
    """Each answer occurs in its own prompt only."""
    for prompt in index.all_prompts:
        fault = _vacuous(index, prompt)
        if fault:
            yield f"prompt {prompt.id} {fault}"
    if len(index.all_prompts) > 1 and len({prompt.expected for prompt in index.all_prompts}) == 1:
        yield f"all {len(index.all_prompts)} prompts expect the same answer"


def _vacuous(index: ReportIndex, prompt: Prompt) -> str | None:
    expected = (prompt.expected or "").strip()
    if len(expected) < _SHORTEST_ANSWER:
        return f"expects {prompt.expected!r}"
    workload = index.workloads.get(prompt.workload)
    shared = workload.shared_prefix + workload.shared_suffix if workload else ""
    if len(index.all_prompts) > 1 and expected in shared:
        return "has its answer in the text that all prompts share"
    if prompt.text is not None and not re.search(rf"(?<![\w-]){re.escape(expected)}(?![\w-])", prompt.text):
        return "does not hold its answer"
    return None


@check("POISON_MISSING", *NEEDLES)
def poison_ran(index: ReportIndex) -> Iterator[str]:
    """An arm replaced keys and values by noise."""
    yield from _control_missing(index, "poison")


@check("IDENTITY_MISSING", *NEEDLES)
def identity_ran(index: ReportIndex) -> Iterator[str]:
    """An arm that restores the original keys and values ran."""
    yield from _control_missing(index, "identity")


@check("EVICTED_MISSING", RESTORED)
def evicted_ran(index: ReportIndex) -> Iterator[str]:
    """An arm that puts nothing back ran."""
    yield from _control_missing(index, "evicted")


def _control_missing(index: ReportIndex, role: str) -> Iterator[str]:
    ran = {prompt for arm in index.arms_of(role) for prompt in index.counted.by_arm.get(arm.name, {})}
    prompts = {
        prompt for arm in index.arms_of("candidate") for prompt in index.counted.by_arm.get(arm.name, {})
    }
    least = min(CONTROL_PROMPTS, len(prompts))
    if len(ran & prompts) < least:
        yield f"the control {role} ran on {len(ran & prompts)} of the candidate's prompts; {least} are needed"


@check("POISON_SURVIVES", *NEEDLES)
def poison_destroys(index: ReportIndex) -> Iterator[str]:
    """Noise in place of keys and values destroys recall; in sliding layers, it moves predictions."""
    yield from _control_survives(index, "poison")


@check("EVICTED_SURVIVES", RESTORED)
def eviction_destroys(index: ReportIndex) -> Iterator[str]:
    """Evicting positions without restoring them destroys recall; in sliding layers, it moves predictions."""
    yield from _control_survives(index, "evicted")


def _control_survives(index: ReportIndex, role: str) -> Iterator[str]:
    for arm in index.arms_of(role):
        if (
            index.option("layers") == "sliding"
        ):  # full-attention layers keep everything and find needles alone
            yield from _unmoved(index, arm)
            continue
        recall = index.recall(arm.name)
        if recall > SURVIVES:
            yield f"the control {arm.name} finds {recall:.0%} of the needles; at most {SURVIVES:.0%} are allowed"


def _unmoved(index: ReportIndex, arm: Arm) -> Iterator[str]:
    moved = _divergence(index, arm)
    exact = max((_divergence(index, identity) for identity in index.arms_of("identity")), default=0.0)
    if moved <= _BEYOND_ROUNDING * exact:
        yield f"the control {arm.name} moves predictions by {moved:.2g} nats, and exact values by {exact:.2g}"


def _divergence(index: ReportIndex, arm: Arm) -> float:
    predictions = [row.prediction for row in index.rows_of(arm.name) if row.prediction is not None]
    return mean_divergence(each.model_dump() for each in predictions) if predictions else 0.0


@check("IDENTITY_BROKEN", *NEEDLES)
def identity_changes_nothing(index: ReportIndex) -> Iterator[str]:
    """Restoring the original keys and values gives the oracle's tokens."""
    for arm in index.arms_of("identity"):
        if arm.oracle is None:
            yield f"the arm {arm.name} names no oracle"
        yield from diverging(index, arm)


@check("IDENTITY_BROKEN", KV_QUANT)
def raw_cache_has_no_error(index: ReportIndex) -> Iterator[str]:
    """The raw cache has no error."""
    for arm in index.arms_of("baseline", "identity"):
        for row in index.rows_of(arm.name):
            if row.sum_squared_error > 0 or row.sum_kl > 0 or row.same_top != row.n_positions:
                yield f"{arm.name} on {row.prompt} has an error, though its cache is raw"


@check("LIVENESS_MISSING", *SPECULATIVE)
def rounds_are_counted(index: ReportIndex) -> Iterator[str]:
    """Every row of a candidate counts rounds, drafts and acceptances."""
    for arm in index.arms_of("candidate"):
        if any(None in (row.commits, row.drafted, row.accepted) for row in index.rows_of(arm.name)):
            yield f"rows of {arm.name} do not count rounds, drafts and acceptances"


@check("LIVENESS_MISSING", *NEEDLES)
def injections_are_counted(index: ReportIndex) -> Iterator[str]:
    """Injecting arms count their injected positions in every row."""
    for arm in _injecting(index):
        if any(_COUNTER not in row.counters for row in index.rows_of(arm.name)):
            yield f"a row of {arm.name} has no counter {_COUNTER}"


@check("INJECTION_NEVER_RAN", *NEEDLES)
def injections_ran(index: ReportIndex) -> Iterator[str]:
    """An injecting arm injected positions in each of its rows."""
    for arm in _injecting(index):
        idle = [row for row in index.rows_of(arm.name) if row.counters.get(_COUNTER) == 0]
        if idle:
            yield f"{arm.name} on {idle[0].prompt} injected no position"


def _injecting(index: ReportIndex) -> list[Arm]:
    """Return the arms that replace keys and values. Arms that keep the raw cache are left out."""
    always = index.kind == RESTORED
    return [
        arm
        for arm in index.all_arms
        if arm.role in ("poison", "identity")
        or (arm.role == "candidate" and (always or (index.kind == RECALL and arm.cache != RAW)))
    ]


@check("INJECTION_NEVER_RAN", KV_QUANT)
def codecs_ran(index: ReportIndex) -> Iterator[str]:
    """A codec's error changes the logits; without one, it counts what it stored."""
    for arm in index.arms_of("candidate", "reference", "poison"):
        rows = index.rows_of(arm.name)
        if any(row.sum_squared_error > 0 for row in rows) and not any(row.sum_kl > 0 for row in rows):
            yield f"{arm.name} has an error in keys and values, and none in the logits"
        if rows and not any(row.sum_squared_error or row.counters.get(_COUNTER) for row in rows):
            yield f"{arm.name} has no error and stored no position: its codec did not run"
