"""Rules about predictions over restored prompts: they show what recall cannot if only sliding layers evict."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.evidence.claims import mean_divergence
from bridge.evidence.names import NEARNESS
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rule import rule

# A control must move predictions at least so many times as far as exact values that come back do, which is rounding.
BEYOND_ROUNDING = 4


def unmoved(index: ReportIndex, arm: Arm) -> Iterator[str]:
    """Yield how a control leaves predictions as they are, so that nobody reads what it takes away."""
    prompts = [prompt for prompt in index.measured.get(arm.name, {}) if prompt in index.prompts]
    moved = mean_divergence(index, arm.name, prompts)
    exact = max((mean_divergence(index, one.name, prompts) for one in index.arms_of("identity")), default=0.0)
    if moved <= BEYOND_ROUNDING * exact:
        yield f"the control {arm.name} moves predictions by {moved:.2g} nats, and exact values by {exact:.2g}"


@rule("CHERRY_PICKED")
def nearness_to_every_control(index: ReportIndex) -> Iterator[str]:
    """A prompt_kl_ratio must be claimed over all prompts against every control, and of sliding layers it must be."""
    controls = {arm.name for arm in index.arms_of("poison", "evicted") if arm.name in index.measured}
    claims = [*index.named(NEARNESS)]
    for arm in index.arms_of("candidate"):
        if arm.name not in index.measured or not (claims or index.restores_sliding):
            continue
        whole = [
            c.against for c in claims if c.arm == arm.name and len(index.wanted(c)) == len(index.all_prompts)
        ]
        lacks = sorted(controls.difference(filter(None, whole)))
        if lacks:
            yield f"{NEARNESS} of {arm.name} is not claimed against {', '.join(lacks[:5])} over all prompts"
