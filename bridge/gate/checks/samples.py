"""Checks of samples: everything that is configured was measured, equally often, and nothing was selected."""

from collections import Counter
from collections.abc import Iterator

from bridge.gate.checks.form import ON_PROMPTS
from bridge.gate.index import ReportIndex, check
from bridge.reports import kinds
from bridge.reports.cache_spec import canonical
from bridge.reports.claims.decoding import LEAST_ROWS
from bridge.reports.claims.verify import passes_of
from bridge.reports.claims.why_no_speed import why_no_speed
from bridge.reports.repetition import words_of

# At most this many rows may be set aside: the first run, and a profiled run.
_SET_ASIDE = 2


def _list(index: ReportIndex, name: str) -> list[object]:
    value = index.option(name)
    return value if isinstance(value, list) else []


@check("NOT_COVERED", *kinds.DECODED, kinds.KV_QUANT, kinds.SOLUTIONS, kinds.TORCH_PARITY)
def arms_ran_equally_often(index: ReportIndex) -> Iterator[str]:
    """Every arm ran equally often on every prompt."""
    arms = [arm.name for arm in index.all_arms]
    for prompt in index.prompts:
        counts = {arm: len(index.rows_of(arm, prompt)) for arm in arms}
        if len({*counts.values()}) > 1:
            least = min(counts, key=lambda arm: counts[arm])
            yield f"{least} ran {counts[least]} times on {prompt}, and others {max(counts.values())} times"
        elif counts and not max(counts.values()):
            yield f"no arm ran on {prompt}"


@check("NOT_COVERED", *kinds.SPECULATIVE, *kinds.NEEDLES, kinds.KV_QUANT, kinds.SOLUTIONS, kinds.TORCH_PARITY)
def configured_arms_ran(index: ReportIndex) -> Iterator[str]:
    """Every configured cache and drafter ran as an arm, or ``left_out`` says why not."""
    ran = {canonical(arm.cache) for arm in index.all_arms if arm.name in index.counted.by_arm}
    left_out = index.option("left_out")
    reasons = list(left_out) if isinstance(left_out, dict) else []
    for cache in _list(index, "caches"):
        spec = canonical(str(cache))
        if spec not in ran and not any(canonical(name.split(" ")[-1]) == spec for name in reasons):
            yield f"the cache {cache} is configured, and no arm with it ran"
    for rollback in _list(index, "rollbacks"):
        for drafter in _list(index, "drafters"):
            name = f"{drafter}/{rollback}"
            ran_so = any(arm == name or arm.startswith(f"{name}/") for arm in index.counted.by_arm)
            if not ran_so and not any(reason.startswith(name) for reason in reasons):
                yield f"{name} is configured, and did not run"


@check("NOT_COVERED", *kinds.NEEDLES)
def configured_needles_were_asked(index: ReportIndex) -> Iterator[str]:
    """Each configured length and depth has its prompts."""
    samples, counts = index.option("samples"), Counter((p.length, p.depth) for p in index.all_prompts)
    for length in _list(index, "lengths"):
        for depth in _list(index, "depths"):
            if isinstance(samples, int) and counts[length, depth] != samples:  # type: ignore[index]
                yield f"{counts[length, depth]} needles of {length} tokens at {depth}; {samples} are configured"  # type: ignore[index]


@check("NOT_COVERED", kinds.VERIFY_L)
def configured_lengths_were_verified(index: ReportIndex) -> Iterator[str]:
    """Each configured length and context was verified, equally often."""
    counts = Counter((row.length, row.context) for row in index.rows if not row.warmup)
    for context in _list(index, "contexts") or sorted({context for _, context in counts}):
        for length in _list(index, "lengths"):
            if not counts[length, context]:
                yield f"{length} tokens on {context} are configured, and were not verified"
    if len({*counts.values()}) > 1:
        yield "lengths were not verified equally often"
    named = canonical(index.report.config.cache)
    for cache in sorted(row for row in {row.cache for row in index.rows} if canonical(row) != named):
        yield f"rows were timed over {cache}, and the report is about {index.report.config.cache}"


@check("NOT_COVERED", kinds.PARITY)
def configured_blocks_were_drafted(index: ReportIndex) -> Iterator[str]:
    """Each prompt has its blocks, numbered from 0."""
    numbers: dict[str, list[int]] = {prompt: [] for prompt in index.prompts}
    for row in index.rows:
        numbers.setdefault(row.prompt, []).append(row.block)
    for prompt, blocks in numbers.items():
        if blocks != [*range(len(blocks))] or not blocks:
            yield f"the blocks of {prompt} are {', '.join(map(str, blocks[:8])) or 'none'}"


@check("NOT_COVERED", kinds.CODEC_RD)
def codes_were_measured_everywhere(index: ReportIndex) -> Iterator[str]:
    """Each code was measured once on each distribution."""
    codes: dict[str, Counter[tuple[object, ...]]] = {}
    for row in index.rows:
        code = (row.codec, row.bits, row.group, row.rotated, row.dim)
        codes.setdefault(row.distribution, Counter())[code] += 1
    for distribution, counts in codes.items():
        (codec, bits, *_), times = counts.most_common(1)[0]
        if times > 1:
            yield f"{codec} at {bits} bits appears {times} times for {distribution}"
    expected = {str(name) for name in _list(index, "distributions")}
    if expected and not index.option("model") and expected != set(codes):
        yield f"{', '.join(sorted(codes))} were measured; {', '.join(sorted(expected))} are configured"


@check("ROWS_SET_ASIDE", *kinds.DECODED, kinds.TORCH_PARITY)
def few_rows_are_set_aside(index: ReportIndex) -> Iterator[str]:
    """An arm sets aside at most its first and a profiled run on a prompt."""
    aside = Counter((row.arm, row.prompt) for row in index.rows if row.warmup)
    for (arm, prompt), times in aside.items():
        if times > _SET_ASIDE:
            yield f"{times} runs of {arm} on {prompt} are marked as warm-up; at most {_SET_ASIDE} may be"


@check("PROMPT_REPEATED", *ON_PROMPTS)
def prompts_differ(index: ReportIndex) -> Iterator[str]:
    """No prompt appears twice, not even with other blanks."""
    for digest, times in Counter(prompt.sha256 for prompt in index.all_prompts).items():
        if times > 1:
            yield f"{times} prompts have the digest {digest[:19]}..."
    texts = {prompt.sha256: prompt.text for prompt in index.all_prompts if prompt.text is not None}
    for text, times in Counter(map(words_of, texts.values())).items():
        if times > 1:
            yield f"{times} prompts differ only in blanks: {text[:60]!r}"


@check("NOTHING_CLAIMED", *kinds.TIMED)
def speed_is_claimed(index: ReportIndex) -> Iterator[str]:
    """Enough was measured for claims about speed."""
    if not any(claim.name == "decode_tok_s" for claim in index.claims):
        yield from why_no_speed(index.data)


@check("NOTHING_CLAIMED", kinds.VERIFY_L)
def passes_are_claimed(index: ReportIndex) -> Iterator[str]:
    """Enough passes were timed for claims about their cost."""
    fewest = min(map(len, passes_of(index.data["rows"]).values()), default=0)
    if fewest < LEAST_ROWS:
        yield f"nothing is claimed about time: {fewest} passes of a length; {LEAST_ROWS} are needed (--repeats)"


@check("COLD_START", *kinds.TIMED)
def runs_are_warmed_up(index: ReportIndex) -> Iterator[str]:
    """Uncounted runs come before timed ones."""
    if index.claims and not any(row.warmup for row in index.rows):
        yield "no run is marked as warm-up, so the first counted one may include loading and compiling"


@check("ANSWERS_CUT", *kinds.NEEDLES)
def answers_are_long_enough(index: ReportIndex) -> Iterator[str]:
    """max_tokens cuts off no answer that misses the needle."""
    for arm in index.arms_of("baseline", "candidate"):
        cut = [
            row.prompt for row in index.rows_of(arm.name)
            if row.stop == "length" and row.prompt in index.prompts and not index.finds(arm.name, row.prompt)
        ]  # fmt: skip
        if cut:
            most = index.report.config.max_tokens
            yield f"{len({*cut})} answers of {arm.name} that miss their needle were cut off after {most} tokens"
