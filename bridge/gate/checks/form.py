"""Checks of a report's form: its names are described, its rows are possible, and its claims follow from its rows."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from bridge.gate.index import ReportIndex, check
from bridge.reports import kinds
from bridge.reports.claims import derive_claims
from bridge.reports.kinds import (
    COMMANDS,
    DECODED,
    KV_QUANT,
    PARITY,
    SERVE,
    SOLUTIONS,
    TORCH_PARITY,
    VERIFY_L,
)
from bridge.reports.models import WithModels
from bridge.reports.rows import CellRow, Decode, ParityRow, QuantRow, SolutionRow, VerifyRow

ALL = tuple(COMMANDS)
ON_PROMPTS = (*DECODED, KV_QUANT, PARITY, SOLUTIONS, TORCH_PARITY)

# How far two programs' sums of the same numbers may differ.
_ROUNDING = 1e-9
# The name of a model, which is neither a path nor a channel such as ``gemma@bf16-q4``.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# The counter of rounds in which the draft model drafted.
_DRAFTED = "rounds_dflash"


@check("PROVENANCE_MISSING", *ALL)
def models_are_named(index: ReportIndex) -> Iterator[str]:
    """The report names its code, models and tokenizer."""
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
    drafted = index.kind == PARITY or any(getattr(row, "counters", {}).get(_DRAFTED) for row in index.rows)
    if drafted and not any(model.role == "draft" for model in index.report.models):
        yield "a model drafted, and models names no draft"


@check("WRONG_MODEL", *(kind for kind in ALL if kind not in (kinds.CODEC_RD, kinds.ALL_REDUCE)))
def configured_model_ran(index: ReportIndex) -> Iterator[str]:
    """The configured model is the measured one, if both are short names or hub ids."""
    wanted = index.option("model")
    measured = [model.id for model in index.report.models if model.role == "target"]
    names = [name for name in (wanted, *measured) if isinstance(name, str) and _NAME.fullmatch(name)]
    # Compare short names only with short names, and hub ids only with hub ids: one may stand for the other.
    are_alike = len({"/" in name for name in names}) == 1
    if measured and len(names) == 1 + len(measured) and are_alike and wanted not in measured:
        yield f"the configured model is {wanted}, and {measured[0]} was measured"


@check("DANGLING_NAME", *ON_PROMPTS)
def names_are_described(index: ReportIndex) -> Iterator[str]:
    """Every named arm, prompt and workload is described exactly once."""
    for noun, names in (
        ("arm", [arm.name for arm in index.all_arms]),
        ("prompt", [prompt.id for prompt in index.all_prompts]),
    ):
        for name, times in Counter(names).items():
            if times > 1:
                yield f"{noun} {name} is described {times} times"
    for noun, known, used in _uses(index):
        for name in sorted({name for name in used if name is not None} - set(known)):
            yield f"{noun} {name} is used, and not described"


def _uses(index: ReportIndex) -> Iterator[tuple[str, Iterable[str], list[str | None]]]:
    arms = [getattr(row, "arm", None) for row in index.rows] + [arm.oracle for arm in index.all_arms]
    arms += [name for claim in index.claims for name in (claim.arm, claim.against)]
    yield "arm", index.arms, arms
    prompts = [row.prompt for row in index.rows] + [claim.where.prompt for claim in index.claims]
    yield "prompt", index.prompts, prompts
    workloads: list[str | None] = [prompt.workload for prompt in index.all_prompts]
    yield "workload", index.workloads, workloads + [claim.where.workload for claim in index.claims]


@check("ROW_CONTRADICTS", *ON_PROMPTS, SERVE)
def rows_agree_with_themselves(index: ReportIndex) -> Iterator[str]:
    """The figures of one row fit together."""
    for i, row in enumerate(index.rows):
        if isinstance(row, Decode):
            fault = next(_decode_faults(row, index.report.config.max_tokens), None)
        elif isinstance(row, QuantRow):
            fault = "more equal top tokens than positions" if row.same_top > row.n_positions else None
        elif isinstance(row, SolutionRow):
            fault = next(_solution_faults(row, index.report.config.max_tokens), None)
        elif isinstance(row, CellRow):
            fault = next(_cell_faults(row, index.report.config.max_tokens), None)
        else:
            fault = "drafts of unlike length" if len(row.reference) != len(row.candidate) else None
        if fault:
            yield f"row {i}: {fault}"


def _decode_faults(row: Decode, most: int) -> Iterator[str]:
    if row.decode_tokens != max(0, len(row.tokens) - 1):
        yield f"decode_tokens is {row.decode_tokens}; the row has {len(row.tokens)} tokens with the first one"
    if len(row.tokens) > most:
        yield f"{len(row.tokens)} tokens were generated; max_tokens is {most}"
    rounds = [row.commits, row.drafted, row.accepted]
    if None in rounds:
        if rounds != [None, None, None]:
            yield "commits, drafted and accepted must all be present, or none"
        return
    yield from _round_faults(row.commits or [], row.drafted or [], row.accepted or [], len(row.tokens))


def _round_faults(commits: list[int], drafted: list[int], accepted: list[int], tokens: int) -> Iterator[str]:
    if not len(commits) == len(drafted) == len(accepted):
        yield "commits, drafted and accepted count different numbers of rounds"
    for i, (c, d, a) in enumerate(zip(commits, drafted, accepted, strict=False)):
        if a > d or c > a + 1:
            yield f"round {i} committed {c} tokens, with {a} of {d} drafts accepted"
    # The last round may commit tokens beyond the stop.
    if sum(commits) < tokens - 1 or (commits and sum(commits[:-1]) >= max(tokens, 1)):
        yield f"rounds committed {sum(commits)} tokens, and {tokens} were generated"


def _solution_faults(row: SolutionRow, most: int) -> Iterator[str]:
    if len(row.tokens) > most:
        yield f"{len(row.tokens)} tokens were generated; max_tokens is {most}"
    if row.passed and row.error is not None:
        yield f"it passed with the error {row.error}"
    if row.commits is not None:
        yield from _round_faults(row.commits, row.drafted or [], row.accepted or [], len(row.tokens))


def _cell_faults(row: CellRow, most: int) -> Iterator[str]:
    proposed, accepted, rounds = (row.counters.get(name, 0) for name in ("proposed", "accepted", "rounds"))
    if accepted > proposed or accepted > row.n_tokens or rounds > row.n_tokens:
        yield f"{accepted} of {proposed} drafts in {rounds} rounds gave {row.n_tokens} tokens"
    if row.n_tokens > most:
        yield f"{row.n_tokens} tokens were generated; max_tokens is {most}"


@check("ROW_REPEATED", *ON_PROMPTS, VERIFY_L, SERVE)
def measurements_appear_once(index: ReportIndex) -> Iterator[str]:
    """No measurement appears twice."""
    for name, times in Counter(map(_name_of, index.rows)).items():
        if times > 1:
            yield f"the row {' '.join(map(str, name))} appears {times} times"


def _name_of(row: object) -> tuple[Hashable, ...]:
    if isinstance(row, Decode):
        return (row.arm, row.prompt, "warm-up" if row.warmup else "repeat", row.repeat)
    if isinstance(row, QuantRow | SolutionRow):
        return (row.arm, row.prompt)
    if isinstance(row, VerifyRow):
        return (row.length, "on", row.context, "warm-up" if row.warmup else "repeat", row.repeat)
    if isinstance(row, CellRow):
        return (row.draft, row.cache, row.warm, row.clients, row.form, row.question)
    return (row.prompt, "block", row.block) if isinstance(row, ParityRow) else ()


@check("CLAIM_NOT_FROM_ROWS", *ALL, kinds.COMPARE)
def claims_follow_from_rows(index: ReportIndex) -> Iterator[str]:
    """Every claim is what ``derive_claims`` derives from the rows."""
    derived = {_about(claim): claim for claim in derive_claims(index.data)}
    for written, claim in zip(index.data.get("claims", []), index.claims, strict=True):
        label = f"{claim.name} of {claim.arm}" if claim.arm else claim.name
        match = derived.get(_about(written))
        if match is None:
            yield f"{label} is claimed, and the rows allow no such claim"
        elif not _is_close(written["value"], match["value"]):
            yield f"{label} is claimed as {written['value']:g}; the rows give {match['value']:.6g}"
        elif not _same_interval(written.get("interval"), match.get("interval")):
            yield f"{label} has the interval {written.get('interval')}; the rows give {match.get('interval')}"
        elif written["definition"] != match["definition"]:
            yield f"{label} has another definition than this version gives it: {written['definition'][:80]!r}"


def _about(claim: Mapping[str, Any]) -> tuple[object, ...]:
    where = claim.get("where") or {}
    places = tuple(sorted((name, value) for name, value in where.items() if value is not None))
    return claim["name"], claim.get("arm"), claim.get("against"), places


def _same_interval(written: Any, derived: Any) -> bool:
    if written is None or derived is None:
        return written is None and derived is None
    return all(_is_close(a, b) for a, b in zip(written, derived, strict=True))


def _is_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
