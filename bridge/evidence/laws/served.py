"""Laws of the server's answers: the features of each cell ran, and its counters, bytes and texts fit together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from bridge.evidence.bundled import bundled_target
from bridge.evidence.floors import floor_of
from bridge.evidence.laws.cells import cell_of, cells_of, said
from bridge.evidence.laws.law import SERVED, law
from bridge.evidence.laws.text import LOST
from bridge.evidence.laws.vocabulary import vocabulary_of
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import CellRow


@law(
    "FEATURE_NEVER_RAN", SERVED, "rows.counters rows.fallback",
    "drafts were proposed, blocks of the prompt were found, clients were served at once, and nothing fell back",
)  # fmt: skip
def every_feature_ran(index: ReportIndex) -> Iterator[str]:
    for cell, rows in cells_of(index).items():
        draft, _, warm, clients, _ = cell
        fallen = next((row.fallback for row in rows if row.fallback), None)
        if fallen:
            yield f"{said(cell)} fell back: {fallen[:100]}"
        sums = {name: sum(row.counters.get(name, 0) for row in rows) for name in ("rounds", "proposed")}
        if (sums["rounds"] > 0 and sums["proposed"] > 0) != (draft != "none"):
            yield f"{said(cell)} counts {sums['rounds']} rounds with {sums['proposed']} drafts"
        if any((row.counters.get("cached_tokens", 0) > 0) != warm for row in rows):
            yield f"{said(cell)} has answers with and without kept blocks of the prompt"
        together = max(row.counters.get("together", 0) for row in rows)
        least = min(row.counters.get("together", 0) for row in rows)
        if (together > 1) != (clients > 1) or together > clients or not least:
            yield f"{said(cell)} counts {together} answers at once"


@law(
    "FEATURE_NEVER_RAN", SERVED, "rows.counters.cache_bytes rows.cache",
    "a packed cache takes fewer bytes than the raw one of the same answer",
)  # fmt: skip
def packed_caches_are_smaller(index: ReportIndex) -> Iterator[str]:
    raw = {
        (cell_of(row)[0], row.warm, row.clients, row.form, row.question): row.counters.get("cache_bytes", 0)
        for row in index.rows
        if row.cache == "raw"
    }
    for row in index.rows:
        held = raw.get((row.draft, row.warm, row.clients, row.form, row.question))
        if row.cache == "raw" or held is None:
            continue
        if not 0 < row.counters.get("cache_bytes", 0) < held:
            yield f"{said(cell_of(row))} takes {row.counters.get('cache_bytes', 0)} bytes; the raw cache takes {held}"


@law(
    "ROW_CONTRADICTS", SERVED, "rows.counters rows.n_tokens config.max_tokens",
    "no more drafts are accepted than proposed or committed, and no answer is longer than allowed",
)  # fmt: skip
def counters_fit(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        proposed, accepted, rounds = (
            row.counters.get(name, 0) for name in ("proposed", "accepted", "rounds")
        )
        if accepted > proposed or accepted > row.n_tokens or rounds > row.n_tokens:
            yield f"row {i}: {accepted} of {proposed} drafts in {rounds} rounds gave {row.n_tokens} tokens"
        if row.n_tokens > index.report.config.max_tokens:
            yield f"row {i} has {row.n_tokens} tokens; at most {index.report.config.max_tokens} were asked for"
        elif row.stop == "length" and row.form == "free" and row.n_tokens < index.report.config.max_tokens:
            yield f"row {i} was cut off after {row.n_tokens} tokens"


@law(
    "TEXT_CONTRADICTS", SERVED, "rows.text rows.tokens rows.form",
    "an answer under a schema is its JSON, equal tokens have equal texts, and no digest is that of nothing",
)  # fmt: skip
def texts_are_answers(index: ReportIndex) -> Iterator[str]:
    texts: dict[str, str] = {}
    nothing = "sha256:" + hashlib.sha256(b"").hexdigest()
    for i, row in enumerate(index.rows):
        if row.tokens == nothing or (not row.text and row.stop == "length"):
            yield f"row {i} has no tokens"
        if texts.setdefault(row.tokens, row.text) != row.text:
            yield f"row {i} has the tokens of another row, and another text"
        whole = row.stop != "length" or row.n_tokens < index.report.config.max_tokens
        cut = not whole and row.text.lstrip()[:1] in ("{", "")
        if row.form == "json_schema" and not cut and not _is_record(row.text):
            yield f"row {i} is not the JSON that its schema asks for"


def _is_record(text: str) -> bool:
    """Return whether a text is an object of the schema that all questions have: a path and a number of lines."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {*found} == {"path", "lines"} and isinstance(found["path"], str)


# The most rows that a round verifies.
BLOCK = 16
# A packed cache reserves as many positions as the raw one, or half of them.
RESERVED = 0.5
WIDTHS = {"float32": 32, "float16": 16, "bfloat16": 16}


@law(
    "FEATURE_NEVER_RAN", SERVED, "rows.counters.cache_bytes rows.cache models.dtype",
    "a packed cache takes no fewer bytes than its format needs for what the raw one holds",
)  # fmt: skip
def packed_caches_hold_their_codes(index: ReportIndex) -> Iterator[str]:
    width = WIDTHS.get(index.target.dtype) if index.target is not None else None
    raw = {_answer(row): row.counters.get("cache_bytes", 0) for row in index.rows if row.cache == "raw"}
    for row in index.rows:
        bits, held = floor_of(row.cache), raw.get(_answer(row))
        if row.cache == "raw" or bits is None or held is None or width is None:
            continue
        least = RESERVED * held * bits / width
        if row.counters.get("cache_bytes", 0) < least:
            yield f"{said(cell_of(row))} takes {row.counters.get('cache_bytes', 0)} bytes; its codes take {least:.0f}"


def _answer(row: CellRow) -> tuple[object, ...]:
    return row.draft, row.warm, row.clients, row.form, row.question


@law(
    "ROW_CONTRADICTS", SERVED, "rows.counters rows.n_tokens rows.clients",
    "each round commits its accepted drafts and one token, and only several clients share rounds",
)  # fmt: skip
def rounds_of_answers(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        rounds, accepted, proposed, joint = (
            row.counters.get(name, 0) for name in ("rounds", "accepted", "proposed", "joint_rounds")
        )
        if rounds + accepted > row.n_tokens + BLOCK - 1:
            yield f"row {i}: {rounds} rounds with {accepted} accepted drafts give more than {row.n_tokens} tokens"
        elif row.draft == "dflash" and rounds + accepted < row.n_tokens / 2:
            yield f"row {i}: {rounds} rounds with {accepted} accepted drafts give fewer than {row.n_tokens} tokens"
        elif proposed > rounds * MOST_DRAFTS:
            yield f"row {i}: {proposed} drafts are proposed in {rounds} rounds"
        elif joint and row.clients == 1:
            yield f"row {i}: {joint} rounds are shared with other clients, and there is none"
        elif joint > row.n_tokens + row.clients:
            yield f"row {i}: {joint} rounds are shared, and the answer has {row.n_tokens} tokens"


MOST_DRAFTS = 63


@law(
    "ROW_CONTRADICTS", SERVED, "rows.counters.cached_tokens rows.counters.cache_bytes models.weights",
    "no more of a prompt was kept than its cache has room for",
)  # fmt: skip
def kept_prompts_have_room(index: ReportIndex) -> Iterator[str]:
    target = index.target
    shape = bundled_target(index).get("cache")
    width = WIDTHS.get(target.dtype) if target is not None else None
    if not shape or not width or any(shape["windows"]):
        return
    each = len(shape["windows"]) * shape["heads"] * shape["dim"] * 2 * width // 8
    for row in index.rows:
        room = row.counters.get("cache_bytes", 0) / each
        if row.cache == "raw" and row.draft != "dflash" and row.counters.get("cached_tokens", 0) > room:
            yield f"{said(cell_of(row))} has {row.counters['cached_tokens']} kept tokens in room for {room:.0f}"


@law(
    "TEXT_CONTRADICTS", SERVED, "rows.text rows.n_tokens models.tokenizer",
    "with a bundled tokenizer, the length of an answer fits its number of tokens",
)  # fmt: skip
def lengths_of_answers(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    longest = max(map(len, words.pieces)) if words is not None else 0
    for i, row in enumerate(index.rows if words is not None else ()):
        size = len(row.text.encode("utf-8", "replace"))
        # A token of its own ends an answer, and a schema's blanks are not part of it.
        if size > longest * (row.n_tokens + 1) or (LOST not in row.text and row.n_tokens > size + 1):
            yield f"row {i}: {size} bytes of text, and {row.n_tokens} tokens"
