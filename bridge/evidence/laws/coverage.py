"""Laws of coverage: everything in the configuration was measured, and the baseline reproduces itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeGuard

from bridge.evidence.laws.law import ALL, CODEC, DECODED, FOUND, PARITY, PROMPTED, QUANT, SWEEP, TIMED, law
from bridge.evidence.laws.loops import arm_name, loops_of
from bridge.evidence.names import TIMED as TIMES
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex
from bridge.evidence.rows import Decode
from bridge.evidence.rules_output import first_difference, parting


def _names(config: Any, name: str) -> list[str]:
    found = getattr(config, name, None)
    return [str(item) for item in found] if isinstance(found, list | tuple) else []


def _numbers(found: Any) -> TypeGuard[list[float]]:
    """Return whether a value of a configuration is a list of numbers."""
    return isinstance(found, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in found
    )


def _number(config: Any, name: str) -> int | None:
    found = getattr(config, name, None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


@law(
    "NOT_COVERED", (*DECODED, *QUANT), "rows.arm rows.prompt claims",
    "every arm of a claim ran on every prompt of the claim",
)  # fmt: skip
def claims_stand_on_all_prompts(index: ReportIndex) -> Iterator[str]:
    told = set()
    for claim in index.claims:
        if claim.name == "recall" or not index.is_whole(claim):  # RECALL_SCOPE says so of recall
            continue
        wanted = index.wanted(claim)
        for arm in filter(None, (claim.arm, claim.against)):
            ran = index.measured.get(arm, {})
            lacks = next((prompt for prompt in wanted if prompt not in ran), None)
            if lacks is not None and (claim.name, arm) not in told:
                told.add((claim.name, arm))
                yield f"{claim.name}: {arm} did not run on {lacks}"


CONFIGURED: dict[str, tuple[str, ...]] = {
    "kakeya.codec-rd": ("codecs", "bits", "groups", "distributions", "n_vectors", "dim"),
    "kakeya.spec-bench": ("repeats", "drafters", "rollbacks", "left_out", "cache"),
    "kakeya.acceptance": ("repeats", "drafters", "rollbacks", "left_out", "cache"),
    "kakeya.native": ("repeats", "cache"),
    "kakeya.recall": ("caches", "lengths", "depths", "samples"),
    "kakeya.restored-prefill": ("caches", "lengths", "depths", "samples"),
    "kakeya.verify-l": ("repeats", "contexts"),
    "kakeya.kv-quant": ("caches", "tokens"),
    "kakeya.parity": ("blocks", "block_size", "max_prompts"),
    "kakeya.serve-conformance": ("drafts", "cache", "caches", "warm", "clients", "forms", "max_tokens"),
}


@law(
    "PROVENANCE_MISSING", ALL, "config",
    "the configuration names every option that decides what is measured",
)  # fmt: skip
def whole_configuration(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    there = (
        {*config} if isinstance(config, dict) else {*(config.model_extra or {}), *type(config).model_fields}
    )
    lacks = [name for name in CONFIGURED[str(index.report.kind)] if name not in there]
    if lacks:
        yield f"config does not name {', '.join(lacks)}"


@law(
    "NOT_COVERED", DECODED, "rows.arm rows.prompt rows.repeat",
    "every arm ran on every prompt, as often as the others",
)  # fmt: skip
def whole_grid(index: ReportIndex) -> Iterator[str]:
    for prompt in index.prompts:
        counts = {arm: len(index.measured.get(arm, {}).get(prompt, [])) for arm in index.measured}
        if counts and len({*counts.values()}) > 1:
            least = min(counts, key=lambda arm: counts[arm])
            yield f"{least} ran {counts[least]} times on {prompt}, and others {max(counts.values())} times"
    for prompt in index.prompts:
        if index.measured and not any(prompt in ran for ran in index.measured.values()):
            yield f"no arm ran on {prompt}"


@law(
    "NOT_COVERED", (*PROMPTED,), "config.caches config.drafters config.rollbacks config.loops config.left_out arms",
    "every configured cache and drafter ran as an arm, or is listed in left_out",
)  # fmt: skip
def configured_arms(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    ran = {arm.cache for arm in index.all_arms if arm.name in index.measured}
    names = {*index.measured}
    left_out = getattr(config, "left_out", None)
    left = {*left_out} if isinstance(left_out, dict) else set()
    if index.report.kind in (*QUANT, *FOUND):
        for cache in _names(config, "caches"):
            if cache not in ran and not any(name.split(" ")[-1] == cache for name in left):
                yield f"the cache {cache} is configured, and no arm with it ran"
    for rollback in _names(config, "rollbacks"):
        for drafter in _names(config, "drafters"):
            for name in (arm_name(drafter, rollback, loop) for loop in loops_of(config)):
                if not {name, f"{drafter}/{rollback}"} & left and name not in names:
                    yield f"{name} is configured, and did not run"


@law(
    "NOT_COVERED", FOUND, "config.lengths config.depths config.samples prompts",
    "each configured length and depth has the configured number of prompts",
)  # fmt: skip
def configured_needles(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    lengths, depths, samples = (getattr(config, name, None) for name in ("lengths", "depths", "samples"))
    if not _numbers(lengths) or not _numbers(depths) or not isinstance(samples, int):
        yield "lengths, depths and samples are not configured as numbers"
        return
    held: Counter[tuple[float | None, float | None]] = Counter(
        (prompt.length, prompt.depth) for prompt in index.all_prompts
    )
    for length in lengths:
        for depth in depths:
            if held[length, depth] != samples:
                yield f"{held[length, depth]} needles of {length} tokens at {depth}; {samples} are configured"
    if sum(held.values()) > len(lengths) * len(depths) * samples:
        yield f"{sum(held.values())} needles; {len(lengths) * len(depths) * samples} are configured"


@law(
    "NOT_COVERED", SWEEP, "config.lengths config.contexts rows",
    "each configured length was verified at each configured context, all equally often",
)  # fmt: skip
def configured_lengths(index: ReportIndex) -> Iterator[str]:
    held = Counter((row.length, row.context) for row in index.rows if not row.warmup)
    contexts = getattr(index.report.config, "contexts", None)
    if not _numbers(contexts):
        contexts = sorted({context for _, context in held})
    for context in contexts:
        for length in index.report.config.lengths:
            if not held[length, context]:
                yield f"{length} tokens on {context} are configured, and were not verified"
    if len({*held.values()}) > 1:
        yield "lengths were not verified equally often"
    odd = {length for length, _ in held} - {*index.report.config.lengths}
    if odd:
        yield f"{min(odd)} tokens were verified, and are not configured"


@law(
    "NOT_COVERED", PARITY, "config.blocks config.block_size config.max_prompts rows prompts",
    "each prompt has its blocks, numbered from 0, and each block all of its drafts",
)  # fmt: skip
def configured_blocks(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    asked, size, most = (_number(config, name) for name in ("blocks", "block_size", "max_prompts"))
    numbers: dict[str, list[int]] = {prompt: [] for prompt in index.prompts}
    for i, row in enumerate(index.rows):
        numbers.setdefault(row.prompt, []).append(row.block)
        if size is not None and len(row.reference) != size - 1:
            yield f"row {i} has {len(row.reference)} drafts; blocks of {size} have {size - 1}"
    for prompt, blocks in numbers.items():
        if blocks != [*range(len(blocks))] or not blocks:
            yield f"the blocks of {prompt} are {', '.join(map(str, blocks[:8])) or 'none'}"
        elif asked is not None and len(blocks) != asked:
            yield f"{prompt} has {len(blocks)} blocks; {asked} are configured"
    if most is not None and len(index.prompts) > most:
        yield f"{len(index.prompts)} prompts; {most} are configured"


def _impossible(config: Any) -> set[str]:
    """Return the codecs that no vector of the configured size can have: no group fits, or it is no power of two."""
    dim, groups = config.get("dim"), config.get("groups")
    if not isinstance(dim, int) or not _numbers(groups) or config.get("model"):
        return set()
    fits = any(group and dim % group == 0 for group in groups)
    return {*(() if fits else ("affine",)), *(("classic",) if dim & (dim - 1) else ())}


@law(
    "NOT_COVERED", CODEC, "config.codecs config.distributions config.n_vectors config.dim rows",
    "each code was measured on each configured distribution, on the configured number and size of vectors",
)  # fmt: skip
def configured_codes(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    names = {row.distribution for row in index.rows}
    asked = config.get("distributions")
    if asked and isinstance(asked, list | tuple) and not config.get("model") and names != {*map(str, asked)}:
        yield f"{', '.join(sorted(names))} were measured; {', '.join(map(str, asked))} are configured"
    for field in ("n_vectors", "dim"):
        count = config.get(field)
        odd = [getattr(row, field) for row in index.rows if getattr(row, field) not in (None, count)]
        if isinstance(count, int) and not config.get("model") and odd:
            yield f"a row has {field} {odd[0]}; {count} is configured"
    told = {"classic" if row.codec.lower()[:2] in ("d4", "e8") else row.codec for row in index.rows}
    codecs = config.get("codecs")
    lacks = {str(name) for name in codecs} - told if isinstance(codecs, list | tuple) else set()
    lacks -= _impossible(config)
    if lacks:
        yield f"{min(lacks)} is configured, and was not measured"
    about = [
        {(row.codec, row.bits, row.group, row.rotated) for row in index.rows if row.distribution == name}
        for name in sorted(names)
    ]
    if asked and any(codes != about[0] for codes in about):
        yield "the distributions were not given to the same codes"


@law(
    "NOT_COVERED", QUANT, "config.max_prompts prompts rows",
    "every cache was scored on every text",
)  # fmt: skip
def whole_scores(index: ReportIndex) -> Iterator[str]:
    for arm, ran in index.measured.items():
        lacks = [prompt for prompt in index.prompts if prompt not in ran]
        if lacks:
            yield f"{arm} was not scored on {lacks[0]}"


@law(
    "BASELINE_UNSTEADY", DECODED, "rows.tokens arms.role",
    "plain greedy decoding of one prompt gives the same tokens each time",
)  # fmt: skip
def baseline_repeats_itself(index: ReportIndex) -> Iterator[str]:
    known: dict[tuple[str, str], list[int]] = {}
    plain = {arm.name for arm in index.arms_of("baseline", "verify1")}
    for i, row in enumerate(index.rows):
        if row.arm in plain and isinstance(row, Decode):
            first = known.setdefault((row.arm, row.prompt), row.tokens)
            if first != row.tokens:
                at = first_difference(first, row.tokens)
                yield f"row {i}: {row.arm} gives other tokens on {row.prompt} from token {at} on than before"


@law(
    "BASELINE_UNSTEADY", TIMED, "rows.tokens rows.divergence arms.role",
    "one forward pass a token gives the baseline's tokens, or parts from them at a near tie",
)  # fmt: skip
def verify1_agrees(index: ReportIndex) -> Iterator[str]:
    if getattr(index.report.config, "temperature", 0.0) > 0:
        return
    for arm in index.arms_of("verify1"):
        base = next((b for b in index.arms_of("baseline") if b.cache == arm.cache), None)
        for row in index.all_decodes(arm.name) if base is not None else ():
            found = index.decodes(base.name, row.prompt) if base else []
            other = next((one for one in found if one.repeat == row.repeat), found[0] if found else None)
            odd = parting(index, row, other) if other is not None else None
            if odd:
                yield f"{arm.name} on {row.prompt} leaves {base.name if base else ''} {odd}"


@law(
    "ORACLE_UNCHECKED", TIMED, "rows.arm rows.prompt arms.role",
    "if a claim is about plain decoding or a speed-up over it, the arm verify1 ran on each of its prompts",
)  # fmt: skip
def verify1_everywhere(index: ReportIndex) -> Iterator[str]:
    checks = {p for arm in index.arms_of("verify1") for p in index.measured.get(arm.name, {})}
    for claim in index.named(*TIMES):
        other = index.arms[claim.against or claim.arm or ""]
        if other.loop != STOCK_LOOP or other.role not in ("baseline", "reference"):
            continue
        if claim.name == "decode_tok_s" and index.report.kind != "kakeya.native":
            continue
        lacks = [prompt for prompt in index.common(claim) if prompt not in checks]
        if lacks and (checks or index.report.kind == "kakeya.native" or claim.name == "decode_ratio"):
            yield f"{claim.name}: no arm verify1 ran on {lacks[0]}"
