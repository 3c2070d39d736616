"""Rules about speed: equal work, interleaved, with enough repeats, against the strongest stock loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from bridge.evidence.bundled import bundled_target
from bridge.evidence.claims import quotient
from bridge.evidence.names import ACCEPTED, COMPARING, NEARNESS, QUOTIENTS, SPEEDUPS, TIMED
from bridge.evidence.parts import Arm, Claim
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex, rate_of, where_of
from bridge.evidence.rows import Decode
from bridge.evidence.rule import rule
from bridge.evidence.stats import APART, bounds_of_median, deviations_above, median

SAMPLES = 5
REPEATS = 3
DECODE_TOKENS = 32
PREFILL_SPREAD = 3.0
DECODE_SPREAD = 2.0
IN_SEQUENCE = 2

# Tolerance by which a baseline may be slower than one forward pass per token, or than another stock arm.
_SLOWER = 0.9
_FASTER = 1.05
# Our own loop without drafts is up to 1.3 times as fast as mlx-lm's on the small bundled models, where overhead counts,
# and up to 1.5 times where its layers begin early, on a CPU.
_OUR_LOOP, _EARLY = 1.4, 1.7
# Where it also multiplies few rows otherwise than mlx-lm, it was up to 1.9 times as fast on the bundled models, and up
# to 3.3 times on larger ones.
_PRODUCTS, _LARGER = 2.2, 4.0

# The fewest seconds of a token by which a baseline is judged. How the host's threads take turns moves shorter ones: at
# 1 ms, mlx-lm's loop, which computes a token ahead, ran at 0.6 to 1.0 times the pace of verify1 on busy cores.
_JUDGED_S = 1.5e-3

_STOCK_CACHES = ("raw", "affine@")
_HIDDEN = 0.03

# Tolerance by which a speed-up may exceed the tokens per round, because loops differ in overhead.
_POSSIBLE = 1.5


@rule("SPEEDUP_SELF_COMPARISON")
def speedup_self_comparison(index: ReportIndex) -> Iterator[str]:
    """Compared arms must differ in more than their names."""
    for claim in index.named(*COMPARING):
        one, other = index.arms[claim.arm or ""], index.arms[claim.against or ""]
        controlled = (
            claim.name == NEARNESS and one.role != other.role
        )  # a control differs from its candidate by role
        if one.name == other.name or (_same(one, other) and not controlled):
            yield f"{claim.name}: the arms {one.name} and {other.name} are the same system"


def _same(one: Arm, other: Arm) -> bool:
    told = {"name", "role", "oracle"}
    return one.model_dump(exclude=told) == other.model_dump(exclude=told)


@rule("SPEEDUP_SAMPLES")
def speedup_samples(index: ReportIndex) -> Iterator[str]:
    """Each arm must have at least five rows."""
    for claim, arm in _arms(index, TIMED):
        rows = sum(len(index.decodes(arm, prompt)) for prompt in index.common(claim))
        if rows < SAMPLES:
            yield f"{claim.name}: the arm {arm} has {rows} rows; at least {SAMPLES} are needed"


@rule("SINGLE_RUN")
def single_run(index: ReportIndex) -> Iterator[str]:
    """Each prompt must have been repeated at least three times."""
    for claim, arm in _arms(index, TIMED):
        fewest = min((len(index.decodes(arm, prompt)) for prompt in index.common(claim)), default=0)
        if 0 < fewest < REPEATS:
            yield f"{claim.name}: the arm {arm} ran {fewest} times on a prompt; at least {REPEATS} are needed"


@rule("SPEEDUP_DECODE_TOKENS")
def speedup_decode_tokens(index: ReportIndex) -> Iterator[str]:
    """Each arm must decode at least 32 tokens in the median."""
    for claim, arm in _arms(index, TIMED):
        counts = [row.decode_tokens for prompt in index.common(claim) for row in index.decodes(arm, prompt)]
        if median(counts) < DECODE_TOKENS:
            yield f"{claim.name}: the median of {arm} is {median(counts):g} decoded tokens; {DECODE_TOKENS} are needed"


@rule("SPEEDUP_DECODE_ONLY_MISSING")
def speedup_decode_only_missing(index: ReportIndex) -> Iterator[str]:
    """A quotient that includes prefill must come with the quotient of decoding alone."""
    pure = [(claim.arm, claim.against, claim.where) for claim in index.named("decode_speedup")]
    for claim in index.named("e2e_speedup"):
        if (claim.arm, claim.against, claim.where) not in pure:
            yield f"e2e_speedup of {claim.arm} over {claim.against} is claimed without decode_speedup"


@rule("SPEEDUP_SCOPE_MISMATCH")
def speedup_scope_mismatch(index: ReportIndex) -> Iterator[str]:
    """Compared arms must have run equally often on the same prompts."""
    for claim in index.named(*COMPARING):
        wanted = index.wanted(claim)
        one, other = ([len(index.measured.get(arm or "", {}).get(p, [])) for p in wanted]
                      for arm in (claim.arm, claim.against))  # fmt: skip
        if one != other:
            odd = next(p for p, a, b in zip(wanted, one, other, strict=True) if a != b)
            yield f"{claim.name}: {claim.arm} and {claim.against} did not run equally often on {odd}"


@rule("SPEEDUP_ORACLE_LOOP")
def speedup_oracle_loop(index: ReportIndex) -> Iterator[str]:
    """A speed-up must be over a stock baseline."""
    for claim in index.named(*SPEEDUPS):
        other = index.arms[claim.against or ""]
        if other.role != "baseline" or other.loop != STOCK_LOOP:
            yield f"{claim.name}: {other.name} is a {other.role} with the loop {other.loop}; a baseline is needed"
        elif not other.cache.startswith(_STOCK_CACHES):
            yield f"{claim.name}: the arm {other.name} uses the cache {other.cache}, which is not one of mlx-lm's"


@rule("SPEEDUP_PREFILL_VARIANCE")
def speedup_prefill_variance(index: ReportIndex) -> Iterator[str]:
    """Prefill of one prompt must take about equally long each time: its median is claimed."""

    def took(arm: str, prompt: str) -> tuple[float, float]:
        return bounds_of_median(row.prefill_s for row in index.decodes(arm, prompt))

    for claim, arm in _arms(index, QUOTIENTS):
        for prompt in index.common(claim):
            least, most = index.once(("prefills", arm, prompt), partial(took, arm, prompt))
            if most > PREFILL_SPREAD * least:
                yield f"{claim.name}: prefill (arm {arm}, prompt {prompt}) took {least:.3g} to {most:.3g} s"


@rule("SPEEDUP_IMPOSSIBLE")
def speedup_impossible(index: ReportIndex) -> Iterator[str]:
    """An arm cannot be faster than its tokens a round times plain decoding, since each round takes a pass."""
    yield from (said for apart, said in _faster_than_rounds(index) if apart)


def _faster_than_rounds(index: ReportIndex) -> Iterator[tuple[bool, str]]:
    """Yield what is faster than its rounds allow, and whether each repeat is, and so many not by chance."""
    for claim in index.named(*SPEEDUPS):
        for prompt in index.common(claim):
            found = _beyond(index, claim.arm, prompt)
            if found is not None:
                yield found[0], f"{claim.name}: {found[1]}"


def _beyond(index: ReportIndex, arm: str | None, prompt: str) -> tuple[bool, str] | None:
    """Return how an arm is faster on a prompt than its rounds allow; None if it is not."""
    return index.once(("beyond", arm, prompt), lambda: _look_beyond(index, arm, prompt))


def _look_beyond(index: ReportIndex, arm: str | None, prompt: str) -> tuple[bool, str] | None:
    found = _allowed(index, arm, prompt)
    rows = [row for row in index.decodes(arm, prompt) if row.commits]
    if found is None or not median(found[0]) > median(found[1]):
        return None
    ours, theirs = found
    tau = 1 / _passes(rows)
    said = (
        f"the arm {arm} is {_POSSIBLE * tau * median(ours) / median(theirs):.2f} times as fast on {prompt}, "
        f"with only {tau:.2f} tokens a round"
    )
    fastest = max(rate_of(row) for other in _plain(index) for row in index.decodes(other, prompt))
    long = len(index.paced(arm, prompt)) >= len(rows)
    return long and min(ours) > _POSSIBLE * fastest and _beyond_chance(index, arm, prompt), said


def _beyond_chance(index: ReportIndex, arm: str | None, prompt: str) -> bool:
    """Return whether repeats, of a prompt or of all, are faster than allowed so often that it is no chance."""

    def look() -> float:
        found = (_allowed(index, arm, other) for other in index.measured.get(arm or "", {}))
        return deviations_above(filter(None, found))

    alone = _allowed(index, arm, prompt)
    return deviations_above([alone] if alone else []) >= APART or index.once(("beyond", arm), look) >= APART


def _allowed(index: ReportIndex, arm: str | None, prompt: str) -> tuple[list[float], list[float]] | None:
    """Return the passes a second of an arm's repeats, and the most that the fastest arm without drafts allows."""

    def look() -> tuple[list[float], list[float]] | None:
        rows = [row for row in index.decodes(arm, prompt) if row.commits]
        others = [[rate_of(row) for row in index.decodes(other, prompt)] for other in _plain(index)]
        fastest = max((found for found in others if median(found) > 0), key=median, default=[])
        if not rows or not fastest:
            return None
        passes = _passes(rows)
        return [rate_of(row) * passes for row in rows], [_POSSIBLE * rate for rate in fastest]

    return index.once(("allowed", arm, prompt), look)


def _passes(rows: list[Decode]) -> float:
    """Return how many rounds a token took."""
    return median(len(row.commits or []) / max(len(row.tokens), 1) for row in rows)


def _plain(index: ReportIndex) -> list[str]:
    return [arm.name for arm in index.all_arms if not drafting(index, arm.name)]


@rule("TIMES_UNCLEAR")
def times_unclear(index: ReportIndex) -> Iterator[str]:
    """Times must not contradict one another, even within the spread of the repeats."""
    yield from (said for apart, said in _faster_than_rounds(index) if not apart)
    yield from (said for apart, said in index.once(("behind",), lambda: [*_behind(index)]) if not apart)


def drafting(index: ReportIndex, arm: str) -> bool:
    """Return whether an arm drafted."""
    return index.once(
        ("drafting", arm), lambda: any(sum(row.drafted or []) for row in index.all_decodes(arm))
    )


@rule("TIME_HIDDEN")
def time_hidden(index: ReportIndex) -> Iterator[str]:
    """Time that is neither prefill nor decoding must be small beside decoding."""
    for claim, arm in _arms(index, TIMED):
        for prompt in index.common(claim):
            for rest, row in index.once(("hidden", arm, prompt), partial(_hidden, index, arm, prompt)):
                shown = f"{rest:.3g} of {row.e2e_s:.3g} s (arm {arm}, prompt {prompt})"
                yield f"{claim.name}: {shown} is neither prefill nor decode time"


def _hidden(index: ReportIndex, arm: str, prompt: str) -> list[tuple[float, Decode]]:
    rests = [(row.e2e_s - row.prefill_s - row.decode_s, row) for row in index.decodes(arm, prompt)]
    return [(rest, row) for rest, row in rests if rest > _HIDDEN * row.decode_s]


@rule("DECODE_SPREAD")
def decode_spread(index: ReportIndex) -> Iterator[str]:
    """Decoding of one prompt must take about equally long each time: its median is claimed."""
    for claim, arm in _arms(index, TIMED):
        for prompt in index.common(claim):
            least, most = index.rates(arm, prompt)
            if most > DECODE_SPREAD * least:
                shown = f"{least:.3g} to {most:.3g} tokens a second"
                yield f"{claim.name}: decoding (arm {arm}, prompt {prompt}) ran at {shown}"


@rule("NOT_INTERLEAVED")
def not_interleaved(index: ReportIndex) -> Iterator[str]:
    """Compared arms must take turns."""
    for claim in index.named(*QUOTIENTS):
        about = ("turns", claim.arm, claim.against, where_of(claim))
        longest = index.once(about, partial(_longest_turn, index, claim))
        if longest > IN_SEQUENCE:
            yield f"{claim.name}: {longest} rows of {claim.arm} or {claim.against} ran in a row; {IN_SEQUENCE} may"


def _longest_turn(index: ReportIndex, claim: Claim) -> int:
    pair, prompts = (claim.arm, claim.against), set(index.common(claim))
    return longest_run(
        [row.arm for row in index.rows if row.arm in pair and row.prompt in prompts and not row.warmup]
    )


def longest_run(items: list[str]) -> int:
    """Return the length of the longest run of equal items."""
    return max((len([*run]) for _, run in itertools.groupby(items)), default=0)


@rule("SLOW_ORACLE")
def slow_oracle(index: ReportIndex) -> Iterator[str]:
    """The baseline must not be clearly slower than another plain loop."""
    yield from (said for apart, said in index.once(("behind",), lambda: [*_behind(index)]) if apart)


def _behind(index: ReportIndex) -> Iterator[tuple[bool, str]]:
    """Yield which baselines are slower than they may be, and whether their repeats show it."""
    for claim, beaten in _beaten(index):
        for arm in index.all_arms:
            prompts = [p for p in index.common(claim) if index.decodes(arm.name, p)]
            least = _least_pace(index, arm, index.arms[beaten])
            if arm.name == beaten or not prompts or least is None:
                continue
            pace = median(quotient(index.rate(beaten, p), index.rate(arm.name, p)) for p in prompts)
            if pace < least:
                said = f"{claim.name}: the baseline {beaten} is only {pace:.2f} times as fast as the arm {arm.name}"
                yield _all_slower(index, beaten, arm.name, prompts), said


def _all_slower(index: ReportIndex, one: str, other: str, prompts: list[str]) -> bool:
    """Return whether all repeats of an arm are slower than another's on most prompts, and so many not by chance.

    No where tokens take too little time to say.
    """
    both = [index.once(("rates", one, other, p), partial(_rates, index, one, other, p)) for p in prompts]
    apart = sum(bool(ours) and bool(theirs) and max(ours) < min(theirs) for ours, theirs in both)
    if median(rate for _, theirs in both for rate in theirs) * _JUDGED_S > 1:
        return False
    return apart * 2 > len(prompts) and deviations_above((theirs, ours) for ours, theirs in both) >= APART


def _rates(index: ReportIndex, one: str, other: str, prompt: str) -> tuple[list[float], list[float]]:
    ours, theirs = ([rate_of(row) for row in index.paced(arm, prompt)] for arm in (one, other))
    return ours, theirs


def _beaten(index: ReportIndex) -> Iterator[tuple[Claim, str]]:
    """Yield claims with the plain loop that they are over; in a report of plain decoding, that they are of."""
    yield from ((claim, claim.against or "") for claim in index.named(*SPEEDUPS))
    yield from (
        (claim, claim.against or "") for claim in index.named("decode_ratio")
        if not drafting(index, claim.against or "")
    )  # fmt: skip
    if index.report.kind == "kakeya.native":
        baselines = {arm.name for arm in index.arms_of("baseline")}
        yield from ((c, c.arm) for c in index.named("decode_tok_s") if c.arm in baselines)


def _least_pace(index: ReportIndex, arm: Arm, beaten: Arm) -> float | None:
    """Return the least pace of what is beaten as a share of an arm's; None if the arm says nothing of that."""
    if beaten.role != "baseline" and arm.cache != beaten.cache:
        return None
    if _is_stock(index, arm):
        return 1 / _FASTER
    if arm.role == "verify1":
        return _SLOWER
    alone = arm.options.get("block_size") == 1 and arm.cache == beaten.cache
    if not alone or drafting(index, arm.name):
        return None
    return 1 / _most_of_our_loop(index, arm)


def _most_of_our_loop(index: ReportIndex, arm: Arm) -> float:
    """Return how many times as fast as the baseline our loop without drafts may be."""
    machine = index.report.identity
    if machine.device != "cpu" or arm.options.get("early_layers") is not True:
        return _OUR_LOOP
    by_openblas = machine.blas.get("name") == "openblas"
    if by_openblas and index.in_float32 and arm.options.get("products") in ("tiled", "turned"):
        return _PRODUCTS if bundled_target(index) else _LARGER
    return _EARLY


def _is_stock(index: ReportIndex, arm: Arm) -> bool:
    return arm.loop == STOCK_LOOP and arm.cache.startswith(_STOCK_CACHES) and not drafting(index, arm.name)


@rule("ORACLE_UNCHECKED")
def oracle_unchecked(index: ReportIndex) -> Iterator[str]:
    """An arm with one forward pass a token must have been measured beside the baseline."""
    for claim in index.named(*SPEEDUPS):
        prompts = index.common(claim)
        if not any(index.decodes(arm.name, p) for arm in index.arms_of("verify1") for p in prompts):
            yield f"{claim.name}: no arm with the role verify1 ran on these prompts"


@rule("PATCHED_ORACLE")
def patched_oracle(index: ReportIndex) -> Iterator[str]:
    """Baselines must run in libraries as they were installed."""
    if index.report.identity.modified:
        yield f"mlx-lm was changed: {index.report.identity.modified[0]}"
    for arm in index.arms_of("baseline", "verify1"):
        if arm.patches:
            yield f"the arm {arm.name} ran with {arm.patches[0]} replaced"


@rule("NOT_GREEDY")
def not_greedy(index: ReportIndex) -> Iterator[str]:
    """Speed and acceptance must be claimed only of greedy decoding."""
    for claim in index.named(*QUOTIENTS, *ACCEPTED, "identical_outputs"):
        if index.report.config.temperature > 0:
            yield f"{claim.name} is claimed at temperature {index.report.config.temperature:g}; 0 is needed"


@rule("LIVENESS_MISSING")
def liveness_missing(index: ReportIndex) -> Iterator[str]:
    """Every row of an arm that drafts must count rounds, drafts and acceptances."""
    claimed = {claim.arm for claim in index.named(*ACCEPTED)}
    for arm in index.all_arms:
        if arm.role != "candidate" and arm.name not in claimed:
            continue
        if any(None in (row.commits, row.drafted, row.accepted) for row in index.all_decodes(arm.name)):
            yield f"rows of {arm.name} do not count rounds, drafts and acceptances"


@rule("FUSED_NEVER_RAN")
def fused_never_ran(index: ReportIndex) -> Iterator[str]:
    """A candidate must draft in most of its rows; one that adapts, in some: it stops where drafts do not pay."""
    for arm in index.arms_of("candidate"):
        rows = [row for row in index.all_decodes(arm.name) if row.drafted is not None]
        idle = sum(not sum(row.drafted or []) for row in rows)
        adapts = arm.options.get("adaptive") is True
        if rows and idle > (len(rows) - 1 if adapts else len(rows) // 2):
            yield f"{arm.name} drafted nothing in {idle} of {len(rows)} rows"


@rule("BASELINE_AS_SUT")
def baseline_as_sut(index: ReportIndex) -> Iterator[str]:
    """A report must have a candidate, or be of the kind kakeya.native."""
    ran = {arm.role for arm in index.all_arms if arm.name in index.measured}
    if index.report.kind == "kakeya.native":
        odd = sorted(ran - {"baseline", "verify1"})
        if odd:
            yield f"a report of plain decoding has an arm with the role {odd[0]}"
    elif "candidate" not in ran:
        yield "no arm with the role candidate ran"


def _arms(index: ReportIndex, names: tuple[str, ...]) -> Iterator[tuple[Claim, str]]:
    """Yield the claims of these names that have rows, once for each arm that they name."""
    for claim in index.named(*names):
        for arm in filter(None, (claim.arm, claim.against)):
            if index.common(claim):
                yield claim, arm
