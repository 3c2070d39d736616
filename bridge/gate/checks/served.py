"""Checks of the server's matrix: no answer depends on its cell, every cell is there, and its features ran."""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from bridge.gate.checks.outputs import no_tie
from bridge.gate.index import ReportIndex, check
from bridge.reports.kinds import SERVE
from bridge.reports.repetition import first_difference
from bridge.reports.rows import CellRow

Cell = tuple[str, str, bool, int, str]


def _cell_of(row: CellRow) -> Cell:
    return row.draft, row.cache, row.warm, row.clients, row.form


def _is_oracle(row: CellRow) -> bool:
    return row.draft == "none" and not row.warm and row.clients == 1


def _named(cell: Cell) -> str:
    draft, cache, warm, clients, form = cell
    return f"{draft} x {cache} x {'warm' if warm else 'cold'} x {clients} x {form}"


def _cells(index: ReportIndex) -> dict[Cell, list[CellRow]]:
    def group() -> dict[Cell, list[CellRow]]:
        cells: dict[Cell, list[CellRow]] = defaultdict(list)
        for row in index.rows:
            cells[_cell_of(row)].append(row)
        return cells

    return index.once(("cells",), group)


@check("CELL_DIFFERS", SERVE)
def answers_do_not_depend_on_cells(index: ReportIndex) -> Iterator[str]:
    """Answers equal the single client's cold, undrafted one, or part at a near tie."""
    oracles = {(row.cache, row.form, row.question): row for row in index.rows if _is_oracle(row)}
    for row in index.rows:
        oracle = oracles.get((row.cache, row.form, row.question))
        fault = next(_unlike(row, oracle), None) if oracle is not None else None
        if fault:
            yield f"{_named(_cell_of(row))}, question {row.question}: {fault}"


def _unlike(row: CellRow, oracle: CellRow) -> Iterator[str]:
    """Yield how an answer is not the single client's, and why a recorded divergence does not explain it."""
    if row.tokens == oracle.tokens:
        yield from (
            f"{name} differs" for name in ("text", "stop") if getattr(row, name) != getattr(oracle, name)
        )
        return
    parting = row.divergence
    if parting is None:
        yield "the tokens differ from the single client's"
    elif (digest_of(parting.ours), digest_of(parting.theirs)) != (row.tokens, oracle.tokens):
        yield "the recorded token ids do not match the digests of the answers"
    else:
        at = first_difference(parting.ours, parting.theirs)
        if at is None or parting.index != at or at >= min(len(parting.ours), len(parting.theirs)):
            yield f"the answers do not part at token {parting.index}"
        elif fault := no_tie(parting):
            yield fault


def digest_of(tokens: Sequence[int]) -> str:
    """Return the digest of token ids, as the server forms it: of decimal numbers with a comma after each."""
    return f"sha256:{hashlib.sha256(''.join(f'{token},' for token in tokens).encode()).hexdigest()}"


@check("NOT_COVERED", SERVE)
def every_cell_is_there(index: ReportIndex) -> Iterator[str]:
    """Every configured cell answers each question, beside a single client's answer."""
    config, cells = index.report.config, _cells(index)
    axes = (config.drafts, config.caches, config.warm, config.clients, config.forms)
    wanted: dict[Cell, int] = {cell: cell[3] for cell in itertools.product(*axes)}
    for cache, form in itertools.product(config.caches, config.forms):
        wanted["none", cache, False, 1, form] = max(config.clients)
    for cell, questions in wanted.items():
        lacking = {*range(questions)} - {row.question for row in cells.get(cell, ())}
        if lacking:
            yield f"{_named(cell)} has no answer to question {min(lacking)}"


@check("FEATURE_NEVER_RAN", SERVE)
def features_ran(index: ReportIndex) -> Iterator[str]:
    """Drafts, reused blocks and simultaneous clients occurred, and nothing fell back."""
    drafting = {row.draft for row in index.rows if row.counters.get("proposed", 0)}
    for cell, rows in _cells(index).items():
        draft, _, warm, clients, _ = cell
        fallback = next((row.fallback for row in rows if row.fallback), None)
        if fallback:
            yield f"{_named(cell)} fell back: {fallback[:100]}"
        proposed = sum(row.counters.get("proposed", 0) for row in rows)
        had_nothing_to_look_up = draft == "lookup" in drafting and not proposed
        if (proposed > 0) != (draft != "none") and not had_nothing_to_look_up:
            yield f"{_named(cell)} proposed {proposed} drafts"
        if any((row.counters.get("cached_tokens", 0) > 0) != warm for row in rows):
            yield f"{_named(cell)} has answers with and without reused blocks of the prompt"
        together = max(row.counters.get("together", 0) for row in rows)
        if (together > 1) != (clients > 1) or together > clients:
            yield f"{_named(cell)} counts {together} answers at once"


@check("FEATURE_NEVER_RAN", SERVE)
def packed_caches_are_smaller(index: ReportIndex) -> Iterator[str]:
    """A packed cache is smaller than the same answer's raw one."""
    raw = {_answer(row): row.counters.get("cache_bytes", 0) for row in index.rows if row.cache == "raw"}
    for row in index.rows:
        whole, packed = raw.get(_answer(row)), row.counters.get("cache_bytes", 0)
        if row.cache != "raw" and whole is not None and not 0 < packed < whole:
            yield f"{_named(_cell_of(row))} takes {packed} bytes; the raw cache takes {whole}"


def _answer(row: CellRow) -> tuple[object, ...]:
    return row.draft, row.warm, row.clients, row.form, row.question
