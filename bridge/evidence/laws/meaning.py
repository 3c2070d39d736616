"""Laws of meaning: words that decide how a figure is understood must come from closed lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.evidence.floors import floor_of
from bridge.evidence.laws.law import (
    ALL,
    CODEC,
    DECODED,
    FOUND,
    MODELLED,
    PROMPTED,
    QUANT,
    SPEC,
    SWEEP,
    law,
)
from bridge.evidence.names import NEARNESS
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex

# What any claim may say in place of its definition.
GENERIC = "as docs/evidence.md defines it"

_RATE = "decode_tokens / decode_s"
_SHARE = "interval: exact (Clopper and Pearson), 95 %"
_PER_ARM = f"the quotient of both arms' medians over repeats of {_RATE}"
_KL = "mean over positions of the KL divergence in nats of the prediction from that with the raw cache"
_MSE = "sum of squared errors of captured keys and values over their sum of squares, all prompts together"
_RATIO = "quotient of the two arms' {}; the second arm stores as many bits a value or more"

# The texts that the engine writes, for each claim. Another text may say that a claim is something else than it is.
DEFINITIONS: dict[str, tuple[str, ...]] = {
    "decode_tok_s": (f"median over prompts of the median over repeats of {_RATE}",),
    "decode_speedup": (f"median over prompts of {_PER_ARM}",),
    "worst_speedup": (f"the least over prompts of {_PER_ARM}",),
    "decode_ratio": (f"median over prompts of {_PER_ARM}; the other arm is no stock baseline",),
    "e2e_speedup": (
        "median over prompts of the quotient of both arms' medians over repeats of all tokens / e2e_s",
    ),
    "accept_length": (
        (
            "tokens committed over rounds of the loop, the target's own token of each round counted, rounds without "
            "drafts too"
        ),
    ),
    "accept_rate": ("drafts accepted over drafts proposed",),
    "identical_outputs": (
        "share of prompts on which every repeat gives the oracle's tokens",
        f"share of prompts on which every token is that of the arm's oracle in every repeat; {_SHARE}",
    ),
    "recall": (
        "share of prompts whose greedy answer holds the expected code, case and all, in every repeat; "
        + _SHARE,
    ),
    "recall_delta": ("recall of arm less recall of against, on the same prompts, with its sign",),
    "cache_bytes": (
        "the most bytes that the arrays of a row's caches held after its last token, filled or not",
        "the most bytes that the arrays of a row's cache held after the last token, unused capacity included",
    ),
    "memory_saving": ("one less the median over prompts of the quotient of two arms' cache bytes",),
    "verify_ms": (
        (
            "median milliseconds of a forward pass over where.length tokens on where.context cached ones, the "
            "likeliest token of each row included"
        ),
    ),
    "verify_ratio": (
        (
            "the median seconds of a forward pass over where.length tokens on where.context cached ones, over those "
            "of a pass over one token"
        ),
    ),
    "stored_bits_per_value": (
        (
            "eight times the bytes of the arrays of keys and values, scales and all, over the values that they stand "
            "for, all prompts together"
        ),
    ),
    "rel_mse": (_MSE,),
    "kl": (_KL,),
    "same_top": ("share of positions whose likeliest token is that with the raw cache",),
    "perplexity": ("exp of the mean over positions of -ln p of the next token of the text",),
    "rel_mse_ratio": (_RATIO.format(_MSE),),
    "kl_ratio": (_RATIO.format(_KL),),
    "prompt_kl": (
        (
            "mean over the positions of the prompts behind two windows of the KL divergence in nats of the prediction "
            "from that with the whole cache"
        ),
    ),
    "prompt_kl_ratio": (
        "ratio of prompt_kl of arm to that of against, a control, on the same prompts; below 1, arm is nearer to raw",
    ),
    "agreement": (
        f"share of drafted tokens on which both agree, position by position, all blocks together; {_SHARE}",
    ),
}

DISTRIBUTIONS = re.compile(r"gaussian|t4|outliers|(?:keys|values)(?: \d{1,4})?")
CODES = re.compile(r"raw|affine|voronoi|[de][48] Q[1-9]\d{0,3}", re.IGNORECASE)
# What mlx-lm and the engine call their caches; what a model brings itself ends in Cache.
KINDS = re.compile(
    r"(?!\w*Cache\w*Cache)[A-Z][A-Za-z0-9]{0,60}Cache|CacheList|packed by engine\.codec\.classic_store"
)
LOOPS = re.compile(
    rf"{re.escape(STOCK_LOOP)}|(?:engine|dflash)(?:\.[A-Za-z0-9_]+)*(?: (?:b?float(?:16|32)))?"
)
OWN = ("learned",)


@law(
    "MEANING_UNKNOWN", ALL, "claims.name claims.definition",
    "a claim has the definition of its name",
)  # fmt: skip
def known_definitions(index: ReportIndex) -> Iterator[str]:
    for claim in index.claims:
        texts = DEFINITIONS.get(claim.name)
        if texts and claim.definition not in (*texts, GENERIC):
            yield f"{claim.name} has the definition {claim.definition[:80]!r}"


@law("MEANING_UNKNOWN", CODEC, "rows.distribution rows.codec", "codes and distributions have known names")
def known_distributions(index: ReportIndex) -> Iterator[str]:
    for name in sorted({row.distribution for row in index.rows}):
        if not DISTRIBUTIONS.fullmatch(name):
            yield f"the distribution {name[:60]!r} is not known"


@law(
    "MEANING_UNKNOWN", (*DECODED, *QUANT), "rows.memory.layers.kind",
    "the kind of each layer's cache is known",
)  # fmt: skip
def known_kinds(index: ReportIndex) -> Iterator[str]:
    kinds = {layer.kind for row in index.rows if row.memory for layer in row.memory.layers}
    for name in sorted(kinds):
        if not KINDS.fullmatch(name):
            yield f"the cache kind {name[:60]!r} is not known"


@law(
    "MEANING_UNKNOWN",
    PROMPTED,
    "arms.loop",
    "the loop of each arm belongs to mlx-lm, the engine or the dflash package",
)
def known_loops(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        if not LOOPS.fullmatch(arm.loop):
            yield f"{arm.name} has the loop {arm.loop[:60]!r}, which is not known"


@law("MEANING_UNKNOWN", PROMPTED, "arms.cache", "the gate knows the format of each candidate's cache")
def known_caches(index: ReportIndex) -> Iterator[str]:
    for arm in index.arms_of("candidate", "reference", "baseline"):
        if arm.cache not in ("raw", *OWN) and floor_of(arm.cache) is None:
            yield f"{arm.name} uses the cache {arm.cache}, whose format the gate does not know"


@law("MEANING_UNKNOWN", SWEEP, "rows.cache", "the gate knows the format of the caches that passes went over")
def known_caches_of_passes(index: ReportIndex) -> Iterator[str]:
    for name in sorted({row.cache for row in index.rows}):
        if name != "raw" and floor_of(name) is None:
            yield f"passes over the cache {name}, whose format the gate does not know"


@law(
    "MEANING_UNKNOWN", (*SPEC, *FOUND, *QUANT), "arms.name arms.role arms.cache",
    "what is named after a drafter, and what keeps a compared cache, is a candidate",
)  # fmt: skip
def candidates_are_called_so(index: ReportIndex) -> Iterator[str]:
    for arm in index.arms_of("reference", "verify1"):
        if drafter_of_the_name(arm):
            yield f"{arm.name} drafts, and has the role {arm.role}"
        elif index.report.kind not in SPEC and arm.cache != "raw":
            yield f"{arm.name} keeps {arm.cache}, and has the role {arm.role}"


@law(
    "MEANING_UNKNOWN", PROMPTED, "claims.against arms.role",
    "no claim compares with a control, apart from prompt_kl_ratio, which compares with nothing else",
)  # fmt: skip
def controls_are_beaten_by_all(index: ReportIndex) -> Iterator[str]:
    controls = {arm.name for arm in index.arms_of("identity", "poison", "evicted")}
    for claim in index.claims:
        if claim.name == NEARNESS:
            roles = (index.arms[name].role for name in (claim.arm, claim.against) if name in index.arms)
            if [*roles] not in (["candidate", "poison"], ["candidate", "evicted"]):
                yield f"{claim.name} of {claim.arm} is against {claim.against}, not of a candidate against a control"
        elif claim.against in controls:
            yield f"{claim.name} of {claim.arm} is against the control {claim.against}"


@law("MEANING_UNKNOWN", PROMPTED, "arms.name arms.role", "an arm is not called by the name of another role")
def names_and_roles(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        roles = [role for role in ("poison", "identity", "evicted", "verify1") if arm.name.lower() == role]
        if roles and arm.role != roles[0]:
            yield f"{arm.name} has the role {arm.role}"


# The draft model, reading the target's embeddings times another factor than the other arms do.
RESCALED = "rescaled"
# Of each drafter, whether it looks up and whether it adapts.
_DRAFTERS = {
    "dflash": (False, False),
    "torch": (False, False),
    RESCALED: (False, False),
    "lookup": (True, False),
    "adaptive": (True, True),
}


def drafter_of_the_name(arm: Arm) -> str | None:
    """Return the drafter of the engine after which an arm is named, as in ``dflash/auto``; None without one."""
    drafter, slash, _ = arm.name.partition("/")
    return drafter if slash and drafter in _DRAFTERS else None


@law(
    "MEANING_UNKNOWN", SPEC, "arms.name arms.options.lookup arms.options.adaptive",
    "an arm that is named after a drafter has the options of that drafter",
)  # fmt: skip
def names_and_options(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        drafter = drafter_of_the_name(arm)
        if drafter:
            told = tuple(arm.options.get(name) for name in ("lookup", "adaptive"))
            if told != _DRAFTERS[drafter]:
                yield f"{arm.name} has lookup {told[0]} and adaptive {told[1]}"


@law(
    "MEANING_UNKNOWN", SPEC, "arms.name arms.options.embed_scale",
    "all drafters read the embeddings times one factor, and an arm named `rescaled` times another one",
)  # fmt: skip
def scales_of_embeddings(index: ReportIndex) -> Iterator[str]:
    told = {arm.name: arm.options.get("embed_scale") for arm in index.all_arms if drafter_of_the_name(arm)}
    rescaled = {name: scale for name, scale in told.items() if name.partition("/")[0] == RESCALED}
    scales = {scale for name, scale in told.items() if name not in rescaled and scale is not None}
    if len(scales) > 1:
        yield f"drafters read the embeddings times {' and '.join(sorted(map(str, scales)))[:60]}"
    for name, scale in rescaled.items():
        if scale is None or scale in scales:
            yield f"{name} reads the embeddings times {str(scale)[:60]}, which is no other factor"


@law(
    "MEANING_UNKNOWN", DECODED, "arms.role arms.loop",
    "verify1 does not use the stock loop, and a baseline of a native report does",
)  # fmt: skip
def roles_and_loops(index: ReportIndex) -> Iterator[str]:
    for arm in index.arms_of("verify1"):
        if arm.loop == STOCK_LOOP:
            yield f"{arm.name} is a verify1, and is decoded by {STOCK_LOOP}"
    for arm in index.arms_of("baseline"):
        if index.report.kind == "kakeya.native" and arm.loop != STOCK_LOOP:
            yield f"{arm.name} is a baseline, and is decoded by {arm.loop}"


DTYPES = ("float32", "float16", "bfloat16")


@law(
    "MEANING_UNKNOWN", MODELLED, "models.dtype arms.options.dtype arms.loop",
    "a model has a type of MLX, and a drafter has the type that its loop names",
)  # fmt: skip
def known_types(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        if model.dtype not in DTYPES:
            yield f"{model.id} ({model.role}) has the type {model.dtype[:60]!r}"
    for arm in index.all_arms:
        told, named = arm.options.get("dtype"), arm.loop.partition(" ")[2]
        if told is not None and (told not in DTYPES or (named and told != named)):
            yield f"{arm.name} has the type {str(told)[:60]!r}, and its loop is {arm.loop}"
