"""Checks of the baseline: stock and unpatched, with a one-row loop beside it; compared arms must differ."""

from collections.abc import Iterator

from bridge.gate.checks.timing import RATIOS
from bridge.gate.index import ReportIndex, check
from bridge.reports import kinds
from bridge.reports.parts import Arm
from bridge.reports.statistics import median

# A baseline is reported if its rate is below this share of the rate of decoding with one forward pass per token.
_SLOW = 0.9


@check("BASELINE_MISSING", *kinds.DECODED, kinds.KV_QUANT)
def baseline_ran(index: ReportIndex) -> Iterator[str]:
    """A baseline ran on every prompt."""
    baselines = [arm.name for arm in index.arms_of("baseline")]
    if not baselines:
        yield "no arm has the role baseline"
    for prompt in index.prompts:
        if baselines and not any(index.rows_of(name, prompt) for name in baselines):
            yield f"no baseline ran on {prompt}"


@check("BASELINE_NOT_STOCK", *kinds.DECODED)
def baseline_is_stock(index: ReportIndex) -> Iterator[str]:
    """Baselines decode in mlx-lm's own loop, without drafts."""
    for arm in index.arms_of("baseline"):
        if arm.loop != kinds.STOCK_LOOP:
            yield f"the baseline {arm.name} uses the loop {arm.loop}; {kinds.STOCK_LOOP} is needed"
        elif index.drafts(arm.name):
            yield f"the baseline {arm.name} drafts"


@check("BASELINE_PATCHED", *kinds.DECODED, kinds.KV_QUANT, kinds.VERIFY_L)
def baseline_is_unpatched(index: ReportIndex) -> Iterator[str]:
    """Baselines run in libraries as they were installed."""
    if index.report.identity.modified:
        yield f"mlx-lm was changed: {index.report.identity.modified[0]}"
    for arm in index.arms_of("baseline", "verify1"):
        if arm.patches:
            yield f"the arm {arm.name} ran with {arm.patches[0]} replaced"


@check("BASELINE_UNSTEADY", *kinds.DECODED)
def baseline_repeats_itself(index: ReportIndex) -> Iterator[str]:
    """Plain greedy decoding repeats a prompt's tokens."""
    if index.report.config.temperature > 0:
        return
    for arm in index.arms_of("baseline", "verify1"):
        for prompt, rows in index.counted.by_arm.get(arm.name, {}).items():
            if len({tuple(getattr(row, "tokens", ())) for row in rows}) > 1:
                yield f"{arm.name} gives different tokens for {prompt} from run to run"


@check("ONE_ROW_LOOP_MISSING", *kinds.TIMED)
def one_row_loop_ran(index: ReportIndex) -> Iterator[str]:
    """An arm with one forward pass a token ran beside the speed-up's baseline."""
    ran = {arm.name for arm in index.arms_of("verify1") if index.counted.by_arm.get(arm.name)}
    if not ran and any(index.claims_of(*RATIOS)):
        yield "no arm with the role verify1 ran"


@check("SLOW_BASELINE", *kinds.TIMED)
def baseline_is_fast(index: ReportIndex) -> Iterator[str]:
    """The baseline is about as fast as one forward pass a token."""
    for one_row in index.arms_of("verify1"):
        for arm in index.arms_of("baseline"):
            share = median(index.counted.ratios(arm.name, one_row.name))
            if share < _SLOW:
                yield f"the baseline {arm.name} is only {share:.2f} times as fast as the arm {one_row.name}"


@check("SELF_COMPARISON", *kinds.DECODED, kinds.KV_QUANT, kinds.TORCH_PARITY)
def compared_arms_differ(index: ReportIndex) -> Iterator[str]:
    """Compared arms differ in more than their names."""
    for claim in index.claims:
        arms = [index.arms[name] for name in (claim.arm, claim.against) if name in index.arms]
        if len(arms) > 1 and (arms[0].name == arms[1].name or _system(arms[0]) == _system(arms[1])):
            yield f"{claim.name}: the arms {arms[0].name} and {arms[1].name} are the same system"


def _system(arm: Arm) -> dict[str, object]:
    return arm.model_dump(exclude={"name", "oracle"})


@check("SELF_COMPARISON", kinds.PARITY)
def compared_drafters_differ(index: ReportIndex) -> Iterator[str]:
    """Two drafters are compared, and they differ."""
    loops = {arm.role: arm.loop for arm in index.all_arms}
    if set(loops) != {"reference", "candidate"}:
        yield "a comparison needs one reference and one candidate"
    elif loops["reference"] == loops["candidate"]:
        yield f"both drafters are {loops['reference']}"


@check("CANDIDATE_MISSING", *kinds.SPECULATIVE, *kinds.NEEDLES, kinds.KV_QUANT)
def candidate_ran(index: ReportIndex) -> Iterator[str]:
    """At least one candidate ran."""
    if not any(index.counted.by_arm.get(arm.name) for arm in index.arms_of("candidate")):
        yield "no arm with the role candidate ran"


@check("NOT_PLAIN", kinds.NATIVE)
def plain_arms_do_not_draft(index: ReportIndex) -> Iterator[str]:
    """A report of plain decoding has only baselines and one-row loops."""
    for arm in index.all_arms:
        if arm.role not in ("baseline", "verify1"):
            yield f"the arm {arm.name} has the role {arm.role}"


@check("NOT_GREEDY", *kinds.DECODED, kinds.TORCH_PARITY)
def decoding_is_greedy(index: ReportIndex) -> Iterator[str]:
    """Speed, acceptance and recall are claimed only of greedy decoding."""
    temperature = index.report.config.temperature
    if temperature > 0 and index.claims:
        yield f"decoding ran at temperature {temperature:g}"
