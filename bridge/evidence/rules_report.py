"""Rules about a whole report: its names, its prompts, and whether its claims follow from its rows."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal

from bridge.evidence.claims import figure
from bridge.evidence.kinds import Parity, WithModels
from bridge.evidence.names import ARMLESS, NEARNESS, OF_CANDIDATES, OF_KIND, SHARES, missing_in
from bridge.evidence.parts import Claim, Prompt
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rule import rule
from bridge.evidence.stats import shared_prefix, shared_suffix

# What counts the rounds that the draft model drafted.
DRAFTED = "rounds_dflash"

# How far a claim may be rounded.
_ROUNDING = 0.005
_SAME = 1e-9

# Shorter texts are shared by chance: a closing bracket, an indented line, a question mark.
_SHARED = 16

# Tokens of a usual chat template; how far from its depth a needle may stand in a text of few notes.
_TEMPLATE = 1000
_MISPLACED = 0.35
# Characters of a question, which stands behind the deepest needle.
_QUESTION = 60


@rule("PROVENANCE_MISSING")
def provenance_missing(index: ReportIndex) -> Iterator[str]:
    """The report must name its code, and its models with their tokenizer."""
    code = index.report.identity.code
    if code.commit is not None and code.dirty is None:
        yield "identity.code names a commit and does not say whether it was dirty"
    if not isinstance(index.report, WithModels):
        return
    targets = [model for model in index.report.models if model.role == "target"]
    if not targets:
        yield "models names no target"
    for model in targets:
        if model.tokenizer is None:
            yield f"{model.id} has no digest of its tokenizer"
    if _drafts_by_model(index) and not any(model.role == "draft" for model in index.report.models):
        yield "a model drafted, and models names no draft"


def _drafts_by_model(index: ReportIndex) -> bool:
    """Return whether rows were drafted by a model: in a comparison of drafters all, elsewhere as their counters say."""
    if isinstance(index.report, Parity):
        return True
    return any(row.counters.get(DRAFTED) for row in index.rows)


@rule("DANGLING_NAME")
def dangling_name(index: ReportIndex) -> Iterator[str]:
    """Every name must be described exactly once."""
    for what, names in (
        ("arm", [arm.name for arm in index.all_arms]),
        ("prompt", [prompt.id for prompt in index.all_prompts]),
    ):
        for times, name in _several(names):
            yield f"{what} {name} is described {times} times"
    for what, known, used in _uses(index):
        for name in sorted({name for name in used if name is not None} - set(known)):
            yield f"{what} {name} is used, and not described"


def _uses(index: ReportIndex) -> Iterator[tuple[str, Iterable[str], list[str | None]]]:
    claims = index.claims
    if index.all_arms:
        used = [getattr(row, "arm", None) for row in index.rows]
        used += [arm.oracle for arm in index.all_arms]
        yield "arm", index.arms, used + [c.arm for c in claims] + [c.against for c in claims]
    if index.all_prompts:
        yield "prompt", index.prompts, [row.prompt for row in index.rows] + [c.where.prompt for c in claims]
        used = [prompt.workload for prompt in index.all_prompts]
        yield "workload", index.workloads, used + [c.where.workload for c in claims]


@rule("PROMPT_UNRECORDED")
def prompt_unrecorded(index: ReportIndex) -> Iterator[str]:
    """Each prompt must have its whole text, or its head and tail."""
    for prompt in index.all_prompts:
        if prompt.text is None and not (prompt.head and prompt.tail):
            yield f"prompt {prompt.id} has neither a text nor head and tail"


@rule("PROMPT_DIGEST")
def prompt_digest(index: ReportIndex) -> Iterator[str]:
    """The digest must be that of the text."""
    for prompt in index.all_prompts:
        if prompt.text is not None and prompt.sha256 != _digest(prompt.text):
            yield f"the digest of prompt {prompt.id} is not that of its text"


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@rule("PROMPT_MISSTATED")
def prompt_misstated(index: ReportIndex) -> Iterator[str]:
    """Token counts, lengths and the places of needles must fit the text."""
    chats = {name for name, told in index.workloads.items() if told.chat_template}
    # However long a template is, each prompt holds it whole: the shortest one bounds it.
    shortest = min((prompt.n_tokens for prompt in index.all_prompts if prompt.workload in chats), default=0)
    for prompt in index.all_prompts:
        room = max(_TEMPLATE, shortest + _SHARED) if prompt.workload in chats else _SHARED
        if prompt.text is not None and prompt.n_tokens > len(prompt.text.encode("utf-8", "replace")) + room:
            yield f"prompt {prompt.id} has {prompt.n_tokens} tokens, more than its text has bytes"
        if prompt.length is not None and not prompt.length / 2 <= prompt.n_tokens <= prompt.length:
            yield f"prompt {prompt.id} has the length {prompt.length}, and {prompt.n_tokens} tokens"
        place = prompt.text.find(prompt.expected) if prompt.text and prompt.expected else -1
        if prompt.depth is not None and prompt.text and place >= 0:
            found = place / len(prompt.text)
            if (
                not prompt.depth - _MISPLACED - _QUESTION / len(prompt.text)
                <= found
                <= prompt.depth + _MISPLACED
            ):
                yield f"the answer of {prompt.id} has the depth {prompt.depth:g}; it was found at {found:.2f}"


@rule("PROMPT_REPEATED")
def prompt_repeated(index: ReportIndex) -> Iterator[str]:
    """No prompt may appear twice, not even with other blanks."""
    for times, name in _several([prompt.sha256 for prompt in index.all_prompts]):
        yield f"{times} prompts have the digest {name[:19]}..."
    different = {prompt.sha256: prompt.text for prompt in index.all_prompts if prompt.text is not None}
    for times, text in _several([" ".join(text.split()) for text in different.values()]):
        yield f"{times} prompts differ only in blanks: {text[:60]!r}"


def _several(names: list[str]) -> Iterator[tuple[int, str]]:
    yield from ((times, name) for name, times in Counter(names).items() if times > 1)


@rule("PROMPT_CONTAMINATED")
def prompt_contaminated(index: ReportIndex) -> Iterator[str]:
    """Text that prompts share must be declared and present, and workloads of unlike tasks must not share an end."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in index.all_prompts:
        groups.setdefault(prompt.workload, []).append(prompt)
    ends: dict[str, str] = {}
    for name, prompts in groups.items():
        heads, tails = [_head(p) for p in prompts], [_tail(p) for p in prompts]
        ends[name] = tails[0]
        if name not in index.workloads:
            continue
        told = index.workloads[name]
        if not all(head.startswith(told.shared_prefix[:1000]) for head in heads):
            yield f"workload {name} declares a prefix that not all of its prompts have"
        if not all(tail.endswith(told.shared_suffix[-1000:]) for tail in tails):
            yield f"workload {name} declares a suffix that not all of its prompts have"
        if len(prompts) > 1:
            yield from _hidden(name, "begin", shared_prefix(heads), told.shared_prefix)
            yield from _hidden(name, "end", shared_suffix(tails), told.shared_suffix)
    for (a, end_a), (b, end_b) in itertools.combinations(ends.items(), 2):
        known = a in index.workloads and b in index.workloads
        shared = shared_suffix([end_a, end_b])
        if known and index.workloads[a].task != index.workloads[b].task and len(shared.strip()) >= _SHARED:
            yield f"workloads {a} and {b} have different tasks, and both end with {shared[-60:]!r}"


def _hidden(name: str, where: str, found: str, declared: str) -> Iterator[str]:
    if len(found.strip()) - len(declared.strip()) >= _SHARED:
        shown = found[:60] if where == "begin" else found[-60:]
        yield f"all prompts of workload {name} {where} with {shown!r}, which is not declared"


def _head(prompt: Prompt) -> str:
    return prompt.text if prompt.text is not None else prompt.head or ""


def _tail(prompt: Prompt) -> str:
    return prompt.text if prompt.text is not None else prompt.tail or ""


@rule("UNNAMED_CLAIM")
def unnamed_claim(index: ReportIndex) -> Iterator[str]:
    """A claim must have a name that the gate can compute."""
    kind = str(index.report.kind)
    for claim in index.claims:
        if claim.name not in OF_KIND[kind]:
            yield f"{claim.name} is not a statistic of {kind}"


@rule("CLAIM_INCOMPLETE")
def claim_incomplete(index: ReportIndex) -> Iterator[str]:
    """A claim must name the arms and rows that it is about."""
    for claim in _known(index):
        lacks = missing_in(claim)
        if lacks:
            yield f"the claim {claim.name} lacks {' and '.join(lacks)}"


@rule("CLAIM_NOT_FROM_ROWS")
def claim_not_from_rows(index: ReportIndex) -> Iterator[str]:
    """A claim must equal what the gate computes from the rows."""
    for claim in _known(index):
        if not index.is_whole(claim):
            continue
        found = figure(index, claim)
        said = f"{claim.name} of {claim.arm}" if claim.arm else claim.name
        if math.isnan(found.value):
            yield f"{said} is claimed as {claim.value:g}; the rows give no such figure"
        elif claim.name in SHARES and _rounded_up(claim.value, found.value):
            yield f"{said} is claimed as {claim.value:g}; the rows give {found.value:.6g}, which must not be rounded"
        elif not _close(claim.value, found.value):
            yield f"{said} is claimed as {claim.value:g}; the rows give {found.value:.4g}"
        elif claim.interval is not None:
            yield from _interval(said, claim.interval, found.interval)


def _rounded_up(given: float, found: float) -> bool:
    """Return whether a share is told as all or as nothing that is neither."""
    return (given >= 1) != (found >= 1) or (given <= 0) != (found <= 0)


def _interval(said: str, given: list[float], found: tuple[float, float] | None) -> Iterator[str]:
    if found is None:
        yield f"{said} has an interval, and none is defined for it"
    elif not all(_close(a, b) for a, b in zip(given, found, strict=True)):
        low, high = found
        yield f"{said} has the interval {given[0]:g} to {given[1]:g}; the rows give {low:.4g} to {high:.4g}"


@rule("CHERRY_PICKED")
def cherry_picked(index: ReportIndex) -> Iterator[str]:
    """If a figure is claimed for some prompts, it must be claimed for all prompts too."""
    whole = {
        (claim.name, claim.arm, claim.against) for claim in _known(index)
        if len(index.wanted(claim)) == len(index.all_prompts)
    }  # fmt: skip
    for claim in _known(index):
        told = len(index.wanted(claim))
        if claim.name not in ARMLESS and told and (claim.name, claim.arm, claim.against) not in whole:
            yield f"{claim.name} of {claim.arm} is claimed for only {told} of {len(index.all_prompts)} prompts"


@rule("INTERVAL_MISSING")
def interval_missing(index: ReportIndex) -> Iterator[str]:
    """A share and a quotient of times must come with an interval."""
    for claim in index.named(
        "recall", "agreement", "decode_speedup", "decode_ratio", "e2e_speedup", NEARNESS
    ):
        if claim.interval is None:
            said = f"{claim.name} of {claim.arm}" if claim.arm else claim.name
            yield f"{said} has no interval"


@rule("SINGLE_PROMPT")
def single_prompt(index: ReportIndex) -> Iterator[str]:
    """A claim about one prompt must name that prompt."""
    for claim in _known(index):
        if claim.name not in ARMLESS and claim.where.prompt is None and len(index.wanted(claim)) == 1:
            yield f"{claim.name} of {claim.arm} is about one prompt; where.prompt must name it"


@rule("CHERRY_PICKED")
def claimed_of_every_candidate(index: ReportIndex) -> Iterator[str]:
    """If a figure is claimed for one candidate, it must be claimed for every candidate that ran."""
    ran = [arm.name for arm in index.arms_of("candidate") if arm.name in index.measured]
    for name in OF_CANDIDATES:
        claimed = {claim.arm for claim in _known(index) if claim.name == name}
        lacks = [arm for arm in ran if arm not in claimed]
        if lacks and claimed.intersection(ran):
            yield f"{name} is not claimed for {', '.join(lacks[:5])}, and for other candidates it is"


def _known(index: ReportIndex) -> Iterator[Claim]:
    names = OF_KIND[str(index.report.kind)]
    yield from (claim for claim in index.claims if claim.name in names)


def _close(given: float, found: float) -> bool:
    """Say whether a figure is what was found, or that rounded to fewer digits: by at most half of its last one."""
    away = abs(given - found)
    if away <= _SAME * abs(found) + _SAME:
        return True
    exponent = Decimal(repr(given)).normalize().as_tuple().exponent
    return away <= _ROUNDING * abs(found) and isinstance(exponent, int) and away <= 0.500001 * 10.0**exponent
