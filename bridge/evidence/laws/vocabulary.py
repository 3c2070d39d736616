"""Laws of the vocabulary: with a bundled tokenizer, a text is exactly what its tokens stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from bridge.evidence.bundled import bundled, bundled_part
from bridge.evidence.laws.law import DECODED, PARITY, law
from bridge.evidence.laws.text import written
from bridge.evidence.report_index import ReportIndex


class Vocabulary(NamedTuple):
    """What the tokens of a byte-level tokenizer stand for.

    Attributes:
        pieces: the bytes of each token.
        special: tokens that are no text.
        ends: tokens that end an answer.
    """

    pieces: tuple[bytes, ...]
    special: frozenset[int]
    ends: frozenset[int]


def _bytes_of_letters() -> dict[str, int]:
    """Return GPT-2's table from the printable letters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(rest)}


@cache
def _vocabulary(digest: str) -> Vocabulary | None:
    told = bundled()["vocabularies"].get(digest)
    if told is None:
        return None
    table, special = _bytes_of_letters(), frozenset(told["special"])
    pieces = tuple(
        piece.encode() if token in special else bytes(table[letter] for letter in piece)
        for token, piece in enumerate(told["pieces"])
    )
    return Vocabulary(pieces, special, frozenset(told["ends"]))


def vocabulary_of(index: ReportIndex) -> Vocabulary | None:
    """Return the vocabulary of a report's target; None if its model does not come with the engine."""
    target = index.target
    if target is None or not bundled_part(target) or target.tokenizer is None:
        return None
    return _vocabulary(target.tokenizer)


def is_text(text: str, tokens: Sequence[int], words: Vocabulary) -> bool:
    """Return whether a text is what tokens stand for: the last one may be left out, and so may special ones."""
    whole = [words.pieces[token] for token in tokens]
    bare = [piece for token, piece in zip(tokens, whole, strict=True) if token not in words.special]
    forms = {b"".join(some) for some in (whole, whole[:-1], bare)}
    found = {written(form.decode("utf-8", "replace")) for form in forms}
    plain = written(text)
    return plain in found or plain.rstrip("\ufffd") in {form.rstrip("\ufffd") for form in found}


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.tokens rows.text models.tokenizer",
    "with a bundled tokenizer, the text is exactly the decoded tokens",
)  # fmt: skip
def text_of_the_vocabulary(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    if words is None:
        return
    for i, row in enumerate(index.rows):
        beyond = [token for token in row.tokens if token >= len(words.pieces)]
        if beyond:
            yield f"row {i}: token {beyond[0]} is none of the {len(words.pieces)} of the tokenizer"
        elif index.tells_text(row) and not is_text(row.text, row.tokens, words):
            yield f"row {i}: its text {row.text[:60]!r} is not what its tokens stand for"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.stop rows.tokens models.tokenizer",
    "an answer stops with `eos` if and only if its last token ends answers",
)  # fmt: skip
def ends_of_the_vocabulary(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    if words is None or getattr(index.report.config, "fixed_length", False) is True:
        return
    for i, row in enumerate(index.rows):
        ended = bool(row.tokens and row.tokens[-1] in words.ends)
        if ended != (row.stop == "eos"):
            yield f"row {i}: it stopped by {row.stop}, and its last token is {row.tokens[-1:] or 'none'}"


@law(
    "TEXT_CONTRADICTS", PARITY, "rows.reference rows.candidate rows.target models.tokenizer",
    "drafted tokens are in the vocabulary",
)  # fmt: skip
def drafts_of_the_vocabulary(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    if words is None:
        return
    for i, row in enumerate(index.rows):
        most = max([*row.reference, *row.candidate, *(row.target or ())], default=0)
        if most >= len(words.pieces):
            yield f"row {i}: token {most} is none of the {len(words.pieces)} of the tokenizer"
