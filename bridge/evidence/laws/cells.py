"""Laws of the cells of the server's matrix: each is there once, and no token depends on it."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from bridge.evidence.laws.answers import MOSTLY
from bridge.evidence.laws.law import SERVED, law
from bridge.evidence.laws.rounds import TIES
from bridge.evidence.laws.vocabulary import is_text, vocabulary_of
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CellRow, Parting
from bridge.evidence.rules_output import first_difference, near_tie
from bridge.evidence.stats import repeated_share

PACKED = ("e8v@4.25", "affine@4g64")  # what "all" stands for, beside raw
# The largest share of a cache's answers that may part in float32. Measured: 1.5 % of packed ones, and no raw one.
PART = 0.2
Cell = tuple[str, str, bool, int, str]


def cell_of(row: CellRow) -> Cell:
    """Return the cell that an answer is in."""
    return row.draft, row.cache, row.warm, row.clients, row.form


def _is_oracle(row: CellRow) -> bool:
    return row.draft == "none" and not row.warm and row.clients == 1


def said(cell: Cell) -> str:
    """Return a cell in words."""
    draft, cache, warm, clients, form = cell
    return f"{draft} x {cache} x {'warm' if warm else 'cold'} x {clients} x {form}"


def cells_of(index: ReportIndex) -> dict[Cell, list[CellRow]]:
    """Return the answers by their cells."""

    def found() -> dict[Cell, list[CellRow]]:
        made: dict[Cell, list[CellRow]] = defaultdict(list)
        for row in index.rows:
            made[cell_of(row)].append(row)
        return made

    return index.once(("cells",), found)


def _oracles(index: ReportIndex) -> dict[tuple[str, str, int], CellRow]:
    rows = (row for row in index.rows if _is_oracle(row))
    return index.once(("oracles",), lambda: {(row.cache, row.form, row.question): row for row in rows})


@law(
    "CELL_DIFFERS", SERVED, "rows.tokens rows.n_tokens rows.text rows.stop rows.divergence",
    "every answer has the tokens, text and stop reason of the single client's cold answer without drafts, or parts "
    "from it at a near tie",
)  # fmt: skip
def no_cell_differs(index: ReportIndex) -> Iterator[str]:
    oracles = _oracles(index)
    for row in index.rows:
        oracle = oracles.get((row.cache, row.form, row.question))
        odd = next(_unlike(index, row, oracle), None) if oracle is not None else None
        if odd:
            yield f"{said(cell_of(row))}, question {row.question}: {odd}"


def _unlike(index: ReportIndex, row: CellRow, oracle: CellRow) -> Iterator[str]:
    """Yield what of an answer is not the single client's, and why a recorded parting does not explain it."""
    if row.divergence is None:
        for name in ("tokens", "n_tokens", "text", "stop"):
            if getattr(row, name) != getattr(oracle, name):
                yield f"{name} differ from the single client's"
    elif row.tokens == oracle.tokens:
        yield "a divergence is recorded, and the tokens are the single client's"
    else:
        yield from _other_tokens(index, row, row.divergence.ours)
        yield from _other_tokens(index, oracle, row.divergence.theirs)
        yield from _no_tie(index, row, row.divergence)


def _other_tokens(index: ReportIndex, row: CellRow, tokens: list[int]) -> Iterator[str]:
    """Yield why these are not the token ids of an answer."""
    words = vocabulary_of(index)
    if digest_of(tokens) != row.tokens or len(tokens) != row.n_tokens:
        yield "the recorded token ids do not match the digest or the length of the answer"
    elif words is not None and max(tokens, default=0) >= len(words.pieces):
        yield f"token {max(tokens)} is none of the {len(words.pieces)} of the tokenizer"
    elif words is not None and row.form == "free" and not is_text(row.text, tokens, words):
        yield f"the text {row.text[:60]!r} is not what the recorded token ids stand for"


def _no_tie(index: ReportIndex, row: CellRow, found: Parting) -> Iterator[str]:
    """Yield why rounding does not explain where an answer parts."""
    at = first_difference(found.ours, found.theirs)
    if found.index != at or at >= min(len(found.ours), len(found.theirs)):
        yield f"the answers do not part at token {found.index}"
        return
    (first, high), (second, low) = found.best
    most = near_tie(index, found, row.cache)
    if {first, second} != {found.ours[at], found.theirs[at]} or high < low:
        yield "the two recorded tokens are not the two that differ"
    elif high - low > most:
        yield f"the logits lie {high - low:.3g} apart; a near tie is at most {most:.3g}"
    elif getattr(found, "kind", None) != "tie" or high - low > TIES * _rounding(found):
        yield f"the answers part at token {at}, and rounding does not explain it"
    elif repeated_share(found.ours) > MOSTLY >= repeated_share(found.theirs):
        yield "its tokens repeat themselves, and the single client's do not"


def digest_of(tokens: Sequence[int]) -> str:
    """Return the digest of token ids, as the server forms it: of decimal numbers with a comma after each."""
    return f"sha256:{hashlib.sha256(''.join(f'{token},' for token in tokens).encode()).hexdigest()}"


def _rounding(found: Parting) -> float:
    told = getattr(found, "rounding", None)
    return float(told) if isinstance(told, int | float) else 0.0


@law(
    "CELL_DIFFERS", SERVED, "rows.divergence rows.cache models.dtype",
    f"in float32, at most {PART:.0%} of the answers from a cache part from the single client's, and equal answers part "
    "at equal logits",
)  # fmt: skip
def few_answers_part(index: ReportIndex) -> Iterator[str]:
    parted: Counter[str] = Counter()
    known: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for row in index.rows:
        if row.divergence is None:
            continue
        parted[row.cache] += 1
        key = (row.cache, row.form, row.question, row.tokens)
        if known.setdefault(key, row.divergence.best) != row.divergence.best:
            yield f"{said(cell_of(row))}, question {row.question}: the same answer parts at other logits elsewhere"
    answers = Counter(row.cache for row in index.rows)
    for cache, several in parted.items() if index.in_float32 else ():
        if several > PART * answers[cache]:
            yield f"{several} of {answers[cache]} answers from the cache {cache} part from the single client's"


@law(
    "CELL_MISSING", SERVED, "config rows.draft rows.cache rows.warm rows.clients rows.form rows.question",
    "every configured cell has an answer to each of its questions, and each has a single client's to compare with",
)  # fmt: skip
def every_cell_is_there(index: ReportIndex) -> Iterator[str]:
    config, cells = index.report.config, cells_of(index)
    most = max(config.clients)
    both = config.cache == "all"
    if {*config.caches} != ({"raw", *PACKED} if both else {"raw", config.cache}):
        yield f"the caches are {', '.join(config.caches)}, and {config.cache} was asked for"
    axes = (config.drafts, config.caches, config.warm, config.clients, config.forms)
    wanted: dict[Cell, int] = {cell: cell[3] for cell in itertools.product(*axes)}
    for cache, form in itertools.product(config.caches, config.forms):
        wanted["none", cache, False, 1, form] = most
    for cell, questions in wanted.items():
        lacks = {*range(questions)} - {row.question for row in cells.get(cell, ())}
        if lacks:
            yield f"{said(cell)} has no answer to question {min(lacks)}"


@law(
    "ROW_REPEATED", SERVED, "rows config",
    "each question of a cell has one answer, and no cell is there that is not configured",
)  # fmt: skip
def no_cell_is_there_twice(index: ReportIndex) -> Iterator[str]:
    config = index.report.config
    for cell, rows in cells_of(index).items():
        counts = Counter(row.question for row in rows)
        if max(counts.values()) > 1:
            yield f"{said(cell)} has several answers to question {counts.most_common(1)[0][0]}"
        draft, cache, warm, clients, form = cell
        known = cache in config.caches and form in config.forms
        asked = draft in config.drafts and warm in config.warm and clients in config.clients
        if not known or not (asked or _is_oracle(rows[0])):
            yield f"{said(cell)} is not configured"
