"""Rules about figures of time: equal work, in turns, often enough, against the strongest stock loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bridge.evidence.claims import quotient
from bridge.evidence.names import ACCEPTED, COMPARING, QUOTIENTS, SPEEDUPS, TIMED
from bridge.evidence.parts import Arm, Claim
from bridge.evidence.stats import median
from bridge.evidence.view import STOCK_LOOP, View, rate_of

SAMPLES = 5
REPEATS = 3
DECODE_TOKENS = 32
PREFILL_SPREAD = 3.0
DECODE_SPREAD = 2.0
IN_SEQUENCE = 2

# How much slower than one forward pass a token, or than another stock arm, a baseline may be measured.
_SLOWER = 0.9
_FASTER = 1.05

_STOCK_CACHES = ("raw", "affine@")
_HIDDEN = 0.03

# How much more than its tokens a round may an arm be faster than the fastest plain one: loops differ in overhead.
_POSSIBLE = 1.5


def speedup_self_comparison(view: View) -> Iterator[str]:
    """Two arms differ in more than their names."""
    for claim in view.named(*COMPARING):
        one, other = view.arms[claim.arm or ""], view.arms[claim.against or ""]
        if one.name == other.name or _same(one, other):
            yield f"{claim.name}: {one.name} and {other.name} are the same system"


def _same(one: Arm, other: Arm) -> bool:
    told = {"name", "role", "oracle"}
    return one.model_dump(exclude=told) == other.model_dump(exclude=told)


def speedup_samples(view: View) -> Iterator[str]:
    """At least five rows in each arm."""
    for claim, arm in _arms(view, TIMED):
        rows = sum(len(view.decodes(arm, prompt)) for prompt in view.common(claim))
        if rows < SAMPLES:
            yield f"{claim.name}: {arm} has {rows} rows; {SAMPLES} are the least"


def single_run(view: View) -> Iterator[str]:
    """Each prompt several times."""
    for claim, arm in _arms(view, TIMED):
        fewest = min((len(view.decodes(arm, prompt)) for prompt in view.common(claim)), default=0)
        if 0 < fewest < REPEATS:
            yield f"{claim.name}: {arm} ran {fewest} times on a prompt; {REPEATS} are the least"


def speedup_decode_tokens(view: View) -> Iterator[str]:
    """At least 32 decoded tokens in the middle."""
    for claim, arm in _arms(view, TIMED):
        counts = [row.decode_tokens for prompt in view.common(claim) for row in view.decodes(arm, prompt)]
        if median(counts) < DECODE_TOKENS:
            yield f"{claim.name}: {arm} decoded {median(counts):g} tokens in the median; {DECODE_TOKENS} are the least"


def speedup_decode_only_missing(view: View) -> Iterator[str]:
    """A quotient with prefill in it does not stand alone."""
    pure = [(claim.arm, claim.against, claim.where) for claim in view.named("decode_speedup")]
    for claim in view.named("e2e_speedup"):
        if (claim.arm, claim.against, claim.where) not in pure:
            yield f"e2e_speedup of {claim.arm} over {claim.against} stands without decode_speedup"


def speedup_scope_mismatch(view: View) -> Iterator[str]:
    """Compared arms ran on the same prompts, equally often."""
    for claim in view.named(*COMPARING):
        wanted = view.wanted(claim)
        one, other = ([len(view.measured.get(arm or "", {}).get(p, [])) for p in wanted]
                      for arm in (claim.arm, claim.against))  # fmt: skip
        if one != other:
            odd = next(p for p, a, b in zip(wanted, one, other, strict=True) if a != b)
            yield f"{claim.name}: {claim.arm} and {claim.against} did not run equally often on {odd}"


def speedup_oracle_loop(view: View) -> Iterator[str]:
    """What is beaten is a stock loop."""
    for claim in view.named(*SPEEDUPS):
        other = view.arms[claim.against or ""]
        if other.role != "baseline" or other.loop != STOCK_LOOP:
            yield f"{claim.name}: {other.name} is a {other.role} decoded by {other.loop}, not by {STOCK_LOOP}"
        elif not other.cache.startswith(_STOCK_CACHES):
            yield f"{claim.name}: {other.name} keeps {other.cache}, which no stock loop does"


def speedup_prefill_variance(view: View) -> Iterator[str]:
    """Identical prefill takes about as long each time."""
    for claim, arm in _arms(view, QUOTIENTS):
        for prompt in view.common(claim):
            times = [row.prefill_s for row in view.decodes(arm, prompt)]
            if max(times) > PREFILL_SPREAD * min(times):
                yield f"{claim.name}: prefill of {prompt} by {arm} took {min(times):.3g} to {max(times):.3g} s"


def speedup_impossible(view: View) -> Iterator[str]:
    """A round takes a forward pass at least: nothing is faster than its tokens a round times plain decoding."""
    yield from (said for apart, said in _faster_than_rounds(view) if apart)


def _faster_than_rounds(view: View) -> Iterator[tuple[bool, str]]:
    """Yield what is faster than its rounds allow, and whether that is so of each repeat against each plain one."""
    for claim in view.named(*SPEEDUPS):
        for prompt in view.common(claim):
            found = _beyond(view, claim.arm, prompt)
            if found is not None:
                yield found[0], f"{claim.name}: {found[1]}"


def _beyond(view: View, arm: str | None, prompt: str) -> tuple[bool, str] | None:
    """Return how an arm is faster on a prompt than its rounds allow; None where it is not."""
    return view.once(("beyond", arm, prompt), lambda: _look_beyond(view, arm, prompt))


def _look_beyond(view: View, arm: str | None, prompt: str) -> tuple[bool, str] | None:
    plain = [other.name for other in view.all_arms if not drafting(view, other.name)]
    rows = [row for row in view.decodes(arm, prompt) if row.commits]
    passes = median(len(row.commits or []) / max(len(row.tokens), 1) for row in rows)
    rates = [rate_of(row) for row in rows]
    others = [[rate_of(row) for row in view.decodes(other, prompt)] for other in plain]
    pace = max((median(found) for found in others if found), default=0.0)
    if not rows or not pace or not median(rates) * passes > _POSSIBLE * pace:
        return None
    fastest = max(rate for found in others for rate in found)
    times, tau = median(rates) / pace, 1 / passes
    said = f"{arm} is {times:.2f} times as fast on {prompt} by {tau:.2f} tokens a round"
    return min(rates) * passes > _POSSIBLE * fastest, said


def times_unclear(view: View) -> Iterator[str]:
    """What the times say against one another is more than their repeats wander."""
    yield from (said for apart, said in _faster_than_rounds(view) if not apart)
    yield from (said for apart, said in _behind(view) if not apart)


def drafting(view: View, arm: str) -> bool:
    """Say whether an arm drafted."""
    return view.once(("drafting", arm), lambda: any(sum(row.drafted or []) for row in view.all_decodes(arm)))


def time_hidden(view: View) -> Iterator[str]:
    """The whole is prefill and decoding; what is neither is little beside decoding, which is what is claimed."""
    for claim, arm in _arms(view, TIMED):
        for prompt in view.common(claim):
            for row in view.decodes(arm, prompt):
                rest = row.e2e_s - row.prefill_s - row.decode_s
                if rest > _HIDDEN * row.decode_s:
                    yield f"{claim.name}: {rest:.3g} of {row.e2e_s:.3g} s of {arm} on {prompt} are told of nowhere"


def decode_spread(view: View) -> Iterator[str]:
    """Identical decoding takes about as long each time."""
    for claim, arm in _arms(view, TIMED):
        for prompt in view.common(claim):
            rates = [rate_of(row) for row in view.decodes(arm, prompt)]
            if max(rates) > DECODE_SPREAD * min(rates):
                yield f"{claim.name}: {arm} decoded {prompt} at {min(rates):.3g} to {max(rates):.3g} tokens a second"


def not_interleaved(view: View) -> Iterator[str]:
    """Compared arms take turns."""
    for claim in view.named(*QUOTIENTS):
        pair, prompts = (claim.arm, claim.against), set(view.common(claim))
        turns = [row.arm for row in view.rows if row.arm in pair and row.prompt in prompts and not row.warmup]
        longest = longest_run(turns)
        if longest > IN_SEQUENCE:
            yield f"{claim.name}: {longest} rows of {claim.arm} or {claim.against} stand in sequence"


def longest_run(items: list[str]) -> int:
    """Return the length of the longest run of equal items."""
    return max((len([*run]) for _, run in itertools.groupby(items)), default=0)


def slow_oracle(view: View) -> Iterator[str]:
    """No stock arm, whatever it is called, is clearly faster than the baseline, nor is one forward pass a token."""
    yield from (said for apart, said in _behind(view) if apart)


def _behind(view: View) -> Iterator[tuple[bool, str]]:
    """Yield which baselines are slower than they may be, and whether all repeats are so on most prompts."""
    for claim, beaten in _beaten(view):
        for arm in view.all_arms:
            prompts = [p for p in view.common(claim) if view.decodes(arm.name, p)]
            if arm.name == beaten or not prompts or not _is_plain(view, arm, view.arms[beaten]):
                continue
            pace = median(quotient(view.rate(beaten, p), view.rate(arm.name, p)) for p in prompts)
            if pace < (1 / _FASTER if _is_stock(view, arm) else _SLOWER):
                apart = sum(_all_slower(view, beaten, arm.name, p) for p in prompts)
                said = f"{claim.name}: {beaten} runs at {pace:.2f} of the pace of {arm.name}"
                yield apart * 2 > len(prompts), said


def _all_slower(view: View, one: str, other: str, prompt: str) -> bool:
    def look() -> bool:
        ours, theirs = ([rate_of(row) for row in view.decodes(arm, prompt)] for arm in (one, other))
        return max(ours) < min(theirs)

    return view.once(("slower", one, other, prompt), look)


def _beaten(view: View) -> Iterator[tuple[Claim, str]]:
    """Yield claims with the plain loop that they are over; in a report of plain decoding, that they are of."""
    yield from ((claim, claim.against or "") for claim in view.named(*SPEEDUPS))
    yield from (
        (claim, claim.against or "") for claim in view.named("decode_ratio")
        if not drafting(view, claim.against or "")
    )  # fmt: skip
    if view.report.kind == "kakeya.native":
        baselines = {arm.name for arm in view.arms_of("baseline")}
        yield from ((c, c.arm) for c in view.named("decode_tok_s") if c.arm in baselines)


def _is_plain(view: View, arm: Arm, beaten: Arm) -> bool:
    """Say whether an arm is a plain loop that what is beaten may not be slower than."""
    if beaten.role != "baseline" and arm.cache != beaten.cache:
        return False
    return arm.role == "verify1" or _is_stock(view, arm)


def _is_stock(view: View, arm: Arm) -> bool:
    return arm.loop == STOCK_LOOP and arm.cache.startswith(_STOCK_CACHES) and not drafting(view, arm.name)


def oracle_unchecked(view: View) -> Iterator[str]:
    """One forward pass a token was measured too."""
    for claim in view.named(*SPEEDUPS):
        prompts = view.common(claim)
        if not any(view.decodes(arm.name, p) for arm in view.arms_of("verify1") for p in prompts):
            yield f"{claim.name}: no arm verify1 ran on these prompts"


def patched_oracle(view: View) -> Iterator[str]:
    """Baselines run in libraries as they were installed."""
    if view.report.identity.modified:
        yield f"mlx-lm was changed: {view.report.identity.modified[0]}"
    for arm in view.arms_of("baseline", "verify1"):
        if arm.patches:
            yield f"{arm.name} ran with {arm.patches[0]} replaced"


def not_greedy(view: View) -> Iterator[str]:
    """Speed and acceptance are claimed where the output can be checked."""
    for claim in view.named(*QUOTIENTS, *ACCEPTED, "identical_outputs"):
        if view.report.config.temperature > 0:
            yield f"{claim.name} is claimed at temperature {view.report.config.temperature:g}"


def liveness_missing(view: View) -> Iterator[str]:
    """Rounds and drafts are counted, where an arm is said to draft."""
    claimed = {claim.arm for claim in view.named(*ACCEPTED)}
    for arm in view.all_arms:
        if arm.role != "candidate" and arm.name not in claimed:
            continue
        if any(None in (row.commits, row.drafted, row.accepted) for row in view.all_decodes(arm.name)):
            yield f"rows of {arm.name} do not count rounds, drafts and acceptances"


def fused_never_ran(view: View) -> Iterator[str]:
    """A candidate drafts, on most prompts."""
    for arm in view.arms_of("candidate"):
        rows = [row for row in view.all_decodes(arm.name) if row.drafted is not None]
        idle = sum(not sum(row.drafted or []) for row in rows)
        if rows and idle * 2 > len(rows):
            yield f"{arm.name} drafted nothing in {idle} of {len(rows)} rows"


def baseline_as_sut(view: View) -> Iterator[str]:
    """A report is about a candidate, or is called native."""
    ran = {arm.role for arm in view.all_arms if arm.name in view.measured}
    if view.report.kind == "kakeya.native":
        odd = sorted(ran - {"baseline", "verify1"})
        if odd:
            yield f"a report of plain decoding has an arm that is a {odd[0]}"
    elif "candidate" not in ran:
        yield "no candidate ran"


def _arms(view: View, names: tuple[str, ...]) -> Iterator[tuple[Claim, str]]:
    """Yield the claims of these names that have rows, once for each arm that they name."""
    for claim in view.named(*names):
        for arm in filter(None, (claim.arm, claim.against)):
            if view.common(claim):
                yield claim, arm
