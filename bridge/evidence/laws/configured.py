"""Laws of the configuration: each option that decides what is measured must agree with arms, prompts or rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from bridge.evidence.bundled import bundled
from bridge.evidence.laws.law import ALL, CODEC, FOUND, NATIVE, PARITY, PROMPTED, QUANT, SPEC, law
from bridge.evidence.laws.loops import LAZY, loops_of
from bridge.evidence.laws.meaning import OWN
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import ReportIndex

_REASON = 8
_NO_DRAFT = "no draft model"
# Bits that Voronoi codes have, and sizes of heads that the published lattices have.
_VORONOI_BITS = (2, 3, 4, 5, 6)
# How long after the run began a first row may start: models are loaded before.
_FIRST_S = 15.0


def option(config: Any, name: str) -> Any:
    """Return an option of a configuration, whatever its model; None if it is absent."""
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


@law(
    "NOT_COVERED", ALL, "config.left_out arms models.role",
    "left_out gives a reason for each name, and none of them ran",
)  # fmt: skip
def reasons_of_what_is_left_out(index: ReportIndex) -> Iterator[str]:
    left = option(index.report.config, "left_out")
    if left is None:
        return
    if not isinstance(left, dict):
        yield "left_out is no list of names with reasons"
        return
    roles = {model.role for model in index.report.models}
    for name, reason in left.items():
        if not isinstance(reason, str) or len(reason.strip()) < _REASON:
            yield f"{name} is left out without a reason"
        elif name in index.arms and name in index.measured:
            yield f"{name} is left out, and ran"
        elif _NO_DRAFT in reason and "draft" in roles:
            yield f"{name} is left out for want of a draft model, and there is one"


@law(
    "NOT_COVERED", SPEC, "config.drafters config.rollbacks config.loops config.block config.cache config.package arms",
    "candidates have the configured drafters, rollbacks, loops, block and cache",
)  # fmt: skip
def configured_drafters(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    drafters, rollbacks = option(config, "drafters"), option(config, "rollbacks")
    block, cache = option(config, "block"), option(config, "cache")
    for arm in index.arms_of("candidate"):
        drafter, slash, rest = arm.name.partition("/")
        rollback, _, loop = rest.partition("/")
        if not slash or arm.name not in index.measured:
            continue
        if isinstance(drafters, list) and drafters and drafter not in drafters:
            yield f"{arm.name} ran, and {drafter} is not among the configured drafters"
        if isinstance(rollbacks, list) and rollbacks and rollback not in rollbacks:
            yield f"{arm.name} ran, and {rollback} is not among the configured rollbacks"
        yield from _odd_loop(config, arm, loop or LAZY)
        if arm.options.get("rollback", rollback) != rollback:
            yield f"{arm.name} rolls back by {arm.options['rollback']}"
        if "block" in (config.model_extra or {}) and arm.options.get("block_size", block) != block:
            yield f"{arm.name} verifies {arm.options['block_size']} rows at once; {block} are configured"
        if isinstance(cache, str) and arm.cache != cache:
            yield f"{arm.name} keeps {arm.cache}; {cache} is configured"
    if option(config, "package") is False:
        yield from (
            f"{arm.name} is the dflash package, and package is off"
            for arm in index.all_arms if arm.loop.startswith("dflash.") and arm.name in index.measured
        )  # fmt: skip


def _odd_loop(config: Any, arm: Arm, named: str) -> Iterator[str]:
    if named not in loops_of(config):
        yield f"{arm.name} ran, and {named} is not among the configured loops"
    if arm.options.get("loop", LAZY) != named:
        yield f"{arm.name} has the loop {arm.options['loop']}"


@law("NOT_COVERED", NATIVE, "config.cache arms.cache", "plain decoding uses the configured cache")
def configured_cache(index: ReportIndex) -> Iterator[str]:
    cache = option(index.report.config, "cache")
    for arm in index.all_arms:
        if isinstance(cache, str) and arm.name in index.measured and arm.cache != cache:
            yield f"{arm.name} keeps {arm.cache}; {cache} is configured"


@law(
    "PROVENANCE_MISSING", PROMPTED, "config.prompts config.source config.chat workloads",
    "the configuration names the sources of the prompts, and whether they were asked as a chat",
)  # fmt: skip
def configured_sources(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    sources = [told.source for told in index.workloads.values()]
    for name in ("prompts", "source"):
        asked = option(config, name)
        if isinstance(asked, str) and asked not in (", ".join(sources), *sources):
            yield f"config.{name} is {asked[:60]!r}, and the prompts are from {', '.join(sources)[:60]!r}"
    chat = option(config, "chat")
    if isinstance(chat, bool) and any(told.chat_template is not chat for told in index.workloads.values()):
        yield f"config.chat is {chat}, and a workload says otherwise"


@law(
    "NOT_COVERED", (*QUANT, *PARITY), "config.max_prompts prompts.sha256",
    "bundled prompts are as many as max_prompts says",
)  # fmt: skip
def configured_number_of_prompts(index: ReportIndex) -> Iterator[str]:
    most = option(index.report.config, "max_prompts")
    digests = [prompt.sha256 for prompt in index.all_prompts]
    for known in bundled()["prompts"].values():
        if (
            isinstance(most, int)
            and known[: len(digests)] == digests
            and len(digests) != min(most, len(known))
        ):
            yield f"{len(digests)} prompts; {most} are configured, and the set has {len(known)}"
            return


@law(
    "NOT_COVERED", (*FOUND, *QUANT), "config.boundary arms.options.boundary arms.options.raw_layers",
    "candidates leave the configured number of layers raw",
)  # fmt: skip
def configured_boundary(index: ReportIndex) -> Iterator[str]:
    boundary = option(index.report.config, "boundary")
    for arm in index.arms_of("candidate"):
        told = arm.options.get("boundary", boundary)
        if isinstance(boundary, int) and told != boundary:
            yield f"{arm.name} leaves {told} layers raw at either end; {boundary} are configured"
        raw = arm.options.get("raw_layers")
        if told and not (isinstance(raw, list) and isinstance(told, int) and len(raw) >= told):
            yield f"{arm.name} leaves {told} layers raw at either end, and does not tell which"


@law(
    "NOT_COVERED", (*FOUND, *QUANT), "arms.options.raw_layers rows.memory.layers",
    "raw_layers names layers of the cache, each once",
)  # fmt: skip
def layers_that_are_there(index: ReportIndex) -> Iterator[str]:
    counts = {row.arm: len(row.memory.layers) for row in index.rows if row.memory}
    for arm in index.all_arms:
        raw = arm.options.get("raw_layers")
        if raw is None or arm.name not in counts:
            continue
        known = [*range(counts[arm.name])]
        places = raw if isinstance(raw, list) and all(type(at) is int for at in raw) else [-1]
        if len({*places}) != len(places) or not {*places} <= {*known}:
            yield f"{arm.name} leaves the layers {str(raw)[:60]} raw; its cache has {len(known)}"


@law(
    "NOT_COVERED", QUANT, "config.store arms.options.stored_as rows.memory.layers.arrays models.dtype",
    "keys and values are stored in the configured type",
)  # fmt: skip
def configured_store(index: ReportIndex) -> Iterator[str]:
    store = option(index.report.config, "store")
    dtypes = {model.dtype for model in index.report.models if model.role == "target"}
    if store not in ("float16", "model") or len(dtypes) != 1:
        return
    (dtype,) = dtypes
    half = store == "float16" and dtype == "float32"
    for arm in index.all_arms:
        told = arm.options.get("stored_as")
        if told is not None and told != ("float16" if half else "model"):
            yield f"{arm.name} stores as {told}; {store} is configured, and the model computes in {dtype}"
    wanted = "float16" if half else dtype
    plain = {arm.name for arm in index.all_arms if arm.cache == "raw"}
    for i, row in enumerate(index.rows):
        if row.arm in plain:
            odd = {a.dtype for layer in row.memory.layers for a in layer.arrays} - {wanted}
            if odd and arm_stores(index, row.arm):
                yield f"row {i}: {row.arm} keeps {min(odd)}; {wanted} is configured"
                return


def arm_stores(index: ReportIndex, name: str) -> bool:
    """Return whether an arm says in which width it stores."""
    return "stored_as" in index.arms[name].options


@law(
    "NOT_COVERED", PARITY, "config.against config.half arms.loop arms.options.dtype models.architecture",
    "the two sides are the configured ones, and each row says how far their logits differ",
)  # fmt: skip
def configured_sides(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    against, half = option(config, "against"), option(config, "half")
    loops = {arm.role: arm.loop for arm in index.all_arms}
    reference, candidate = loops.get("reference", ""), loops.get("candidate", "")
    if against == "package" and not reference.startswith("dflash."):
        yield f"the package is configured as reference, and the reference is {reference}"
    elif against == "torch" and not reference.endswith("in_torch float32"):
        yield f"torch is configured as reference, and the reference is {reference}"
    elif against == "float32" and reference.startswith("dflash."):
        yield f"float32 is configured as reference, and the reference is {reference}"
    elif against == "float32" and isinstance(half, str) and candidate.rpartition(" ")[2] != half:
        yield f"{half} is configured, and the candidate is {candidate}"
    plain = any(getattr(model, "architecture", None) == "DFlashDraftModel" for model in index.report.models)
    for i, row in enumerate(index.rows):
        if plain and row.max_logit_error is None:
            yield f"row {i} does not say how far the logits differ"
            return
        if reference != candidate and row.max_logit_error == 0 and "float" in candidate:
            yield f"row {i}: logits of {reference} and {candidate} do not differ at all"
            return


@law(
    "NOT_COVERED", CODEC, "config.codecs config.bits config.groups config.q_ranges rows",
    "each code of the configured bits, groups and ranges was measured on each distribution",
)  # fmt: skip
def every_configured_code(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    codecs, bits, groups = (option(config, name) for name in ("codecs", "bits", "groups"))
    ranges = option(config, "q_ranges")
    asked = [*(codecs if isinstance(codecs, list) else ())]
    for found in (bits, groups, ranges):
        asked += found if isinstance(found, list) else ()
    if not all(isinstance(found, list) for found in (codecs, bits, groups)) or option(config, "model"):
        return
    if not all(isinstance(one, int | str) for one in asked):
        yield "codecs, bits, groups and ranges are not configured as names and numbers"
        return
    for distribution in sorted({row.distribution for row in index.rows}):
        rows = [row for row in index.rows if row.distribution == distribution]
        held = {(row.codec.lower(), row.bits, row.group or 0, bool(row.rotated)) for row in rows}
        dims = {row.dim for row in rows}
        dim = dims.pop() if len(dims) == 1 else None
        wanted: set[tuple[Any, ...]] = {("raw", 16, 0, False)} if "raw" in codecs else set()
        if "affine" in codecs and dim:
            sizes = [group for group in groups if isinstance(group, int) and group and dim % group == 0]
            wanted |= {("affine", *one) for one in itertools.product(bits, sizes, (False, True))}
        if "voronoi" in codecs:
            wanted |= {("voronoi", one, 0, True) for one in bits if one in _VORONOI_BITS}
        if "classic" in codecs and isinstance(ranges, list) and dim and not dim & (dim - 1):
            wanted |= {(f"{name} q{q}", q, 0, True) for name in ("d4", "e8") for q in ranges}
        lacks = sorted(wanted - held, key=str)
        if lacks:
            codec, at, group, rotated = lacks[0]
            shown = (
                f"{codec} at {at}" + (f", group {group}" if group else "") + (", rotated" if rotated else "")
            )
            yield f"{shown} is configured, and was not measured on {distribution}"


@law(
    "RUNS_MISNUMBERED", PROMPTED, "config.resumed_rows rows.started_s",
    "after the rows of an interrupted run, the next row starts soon after the run was resumed",
)  # fmt: skip
def resumed_rows(index: ReportIndex) -> Iterator[str]:
    resumed, told = index.resumed, option(index.report.config, "resumed_rows")
    if told is not None and (type(told) is not int or told < 0):
        yield f"{told!r} rows are said to be resumed"
    if resumed > len(index.rows):
        yield f"{resumed} rows are resumed, and there are {len(index.rows)}"
        return
    rest = index.rows[resumed:]
    start = getattr(rest[0], "started_s", None) if rest else None
    if resumed and start is not None and start > _FIRST_S:
        yield f"the first row after {resumed} resumed ones started {start:.4g} s after the run began"


LISTS = ("caches", "lengths", "depths", "contexts", "codecs", "bits", "groups", "q_ranges", "distributions")


@law(
    "NOT_COVERED", ALL, "config.caches config.lengths config.depths config.contexts arms.cache rows.context",
    "the configuration names nothing twice, and names every cache and context that was measured",
)  # fmt: skip
def nothing_else_was_measured(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    for name in (*LISTS, "drafters", "rollbacks", "loops"):
        asked = option(config, name)
        if isinstance(asked, list) and len({*map(str, asked)}) != len(asked):
            yield f"config.{name} names something twice"
    caches, contexts = option(config, "caches"), option(config, "contexts")
    if isinstance(caches, list):
        ran = {arm.cache for arm in index.arms_of("candidate") if arm.name in index.measured}
        odd = sorted(ran - {*map(str, caches), *OWN})
        if odd:
            yield f"the cache {odd[0]} was measured, and is not among the configured caches"
    if isinstance(contexts, list):
        beyond = sorted({row.context for row in index.rows} - {*contexts})
        if beyond:
            yield f"the context {beyond[0]} was measured, and is not among the configured contexts"
