"""Laws of text: tokens are what was put out, text is theirs, and a stop is where they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from bridge.evidence.laws.law import DECODED, PARITY, law
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.stats import loops

# Characters that a token stands for at most: lines of blanks, dots or dashes in large vocabularies. Characters of the
# name of a token that ends answers. Tokens that a character may be in pieces: UTF-8 has four bytes at most.
CHARACTERS = 128
NAME = 24
PIECES = 4
# Characters that are missing at the ends of a text: blanks before it, and a character that is cut off.
MISSING = 4
# Tokens that two outputs share show in a text that they share. So many tokens are more than a word. The first so many
# hold the first words.
SHARED_TOKENS, SEVERAL, FIRST = 4, 3, 6
ASCII_PIECES = 3
# Tokens of a text that repeats a few words twelve times are less varied.
VARIED, REPEATED = 0.85, 10
TINY = 1e-6
# Texts that are the same for so long come of the same tokens.
SHARED_TEXT = 24


# What a tokenizer writes for bytes that are no whole character: many tokens look like it.
LOST = "\ufffd"
# Byte-level tokenizers name the byte 0 by this letter, and mlx-lm's detokenizer writes that name in place of the byte.
NAME_OF_ZERO = "\u0100"


def written(text: str) -> str:
    """Return a text as any detokenizer writes it: mlx-lm drops the blank before a first word and names the byte 0."""
    return text.lstrip(" ").replace(NAME_OF_ZERO, "\0")


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.stop rows.tokens config.max_tokens",
    "an answer that stops for its length has exactly max_tokens tokens",
)  # fmt: skip
def stop_agrees_with_length(index: ReportIndex) -> Iterator[str]:
    most = index.report.config.max_tokens
    for i, row in enumerate(index.rows):
        if row.stop == "length" and len(row.tokens) != most:
            yield f"row {i}: it stopped for its length after {len(row.tokens)} tokens of {most}"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.stop rows.tokens",
    "a token that ends answers appears only at the end",
)  # fmt: skip
def ends_end(index: ReportIndex) -> Iterator[str]:
    ends = {row.tokens[-1] for row in index.rows if row.stop == "eos" and row.tokens}
    for i, row in enumerate(index.rows):
        if ends.intersection(row.tokens[:-1]):
            yield f"row {i}: tokens follow a token that ends answers"
        elif row.stop == "length" and row.tokens and row.tokens[-1] in ends:
            yield f"row {i}: it stopped for its length at a token that ends answers"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.tokens rows.text",
    "the same tokens give the same text, apart from a leading blank, and the same text comes from similar tokens",
)  # fmt: skip
def one_text_for_tokens(index: ReportIndex) -> Iterator[str]:
    texts: dict[tuple[int, ...], str] = {}
    tokens: dict[str, tuple[int, ...]] = {}
    for i, row in enumerate(index.rows):
        if not index.tells_text(row):
            continue
        put_out, text = tuple(row.tokens), written(row.text)
        known = texts.setdefault(put_out, text)
        if known != text and not (row.stop == "eos" and _differ_by_an_end(known, text)):
            yield f"row {i}: its tokens are {known[:60]!r} elsewhere, and {text[:60]!r} here"
        other = tokens.setdefault(text, put_out)
        # A text can be cut into tokens in several ways, which have most of their tokens in common.
        shared = sum((Counter(other) & Counter(put_out)).values())
        several = (
            min(len(put_out), len(other)) >= SEVERAL
        )  # one word may be one token with its blank, and one without
        if several and text and LOST not in text and shared * 3 < len(put_out):
            yield f"row {i}: other tokens are the same text {text[:60]!r} elsewhere"


def _too_few_letters(letters: int, tokens: int, text: str, *written_out: str) -> bool:
    """Return whether two outputs share too few letters, behind their leading blanks, for the tokens that they share."""
    if tokens < SHARED_TOKENS:
        return False
    if not text.isascii():
        return (letters + MISSING) * PIECES < tokens
    blanks = min(len(one) - len(one.lstrip(" ")) for one in written_out)
    return (letters + blanks) * ASCII_PIECES < tokens


def _differ_by_an_end(one: str, other: str) -> bool:
    """Say whether one of two texts only goes on with the name of the token that ends answers: some loops write it."""
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and len(long) - len(short) <= NAME


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.tokens rows.text rows.prompt",
    "outputs that begin with the same tokens begin with the same text, and vice versa",
)  # fmt: skip
def texts_part_where_tokens_do(index: ReportIndex) -> Iterator[str]:
    told = sorted(
        (
            (tuple(row.tokens), written(row.text), i)
            for i, row in enumerate(index.rows)
            if index.tells_text(row)
        ),
        key=lambda item: item[0],
    )
    for (one, text, n), (other, beside, i) in pairwise(told):
        tokens, letters = _common(one, other), _common(text, beside)
        if _too_few_letters(letters, tokens, text, index.rows[n].text, index.rows[i].text):
            yield f"row {i}: {tokens} tokens are another row's, and {letters} characters of its text"
    by_text = sorted(((text, tokens, i) for tokens, text, i in told), key=lambda item: item[0])
    for (text, one, _), (beside, other, i) in pairwise(by_text):
        letters = _common(text, beside)
        # Behind unlike blanks, the same words are the same tokens.
        if (
            letters >= SHARED_TEXT
            and not {*one[:FIRST]} & {*other[:FIRST]}
            and text != beside
            and LOST not in text[:letters]
        ):
            yield f"row {i}: {letters} characters are another row's, and none of its tokens"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.tokens rows.text",
    "the length of a text fits its number of tokens",
)  # fmt: skip
def length_of_text(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if len(row.text) > CHARACTERS * (len(row.tokens) + 4) or (
            index.tells_text(row) and (len(row.text) + MISSING) * PIECES < len(row.tokens)
        ):
            yield f"row {i}: {len(row.text)} characters of {len(row.tokens)} tokens"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.tokens rows.text",
    "if a text repeats itself, so do its tokens",
)  # fmt: skip
def loops_are_in_both(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if (
            index.tells_text(row)
            and loops(row.text.split(), unit=4)
            and len({*row.tokens}) > max(VARIED * len(row.tokens), len(row.tokens) - REPEATED)
        ):
            yield f"row {i}: its text repeats itself, and its tokens do not"


@law(
    "TEXT_CONTRADICTS", PARITY, "rows.reference rows.candidate rows.margin rows.max_logit_error",
    "drafts differ only at a recorded margin of at most twice the difference of the logits",
)  # fmt: skip
def margins_fit(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        margin, error = getattr(row, "margin", None), row.max_logit_error
        differ = row.reference != row.candidate
        if margin is not None and not differ:
            yield f"row {i}: a margin of {margin} is recorded, and the drafts are the same"
        elif differ and error is not None and not isinstance(margin, int | float):
            yield f"row {i}: the drafts differ, and no margin is recorded"
        elif differ and error is not None and margin is not None and not -TINY <= margin <= 2 * error + TINY:
            yield f"row {i}: the drafts differ at a margin of {margin:g}; the logits differ by {error:g} at most"


@law(
    "TEXT_CONTRADICTS", PARITY, "rows.target rows.reference rows.block",
    "a block begins behind the drafts of the reference that the target accepted, and one more token",
)  # fmt: skip
def blocks_follow_one_text(index: ReportIndex) -> Iterator[str]:
    before: dict[str, tuple[int, ...]] = {}
    for i, row in enumerate(index.rows):
        if row.target is None:
            continue
        target, known = tuple(row.target), before.get(row.prompt, ())
        shared = min(len(known), len(target))
        if len(target) != len(row.reference):
            yield f"row {i}: {len(row.reference)} drafts, and {len(target)} tokens of the target"
        elif known[:shared] != target[:shared]:
            yield f"row {i}: the target's tokens are not those that the block before told"
        before[row.prompt] = target[_common(target, tuple(row.reference)) + 1 :]


def _common(one: tuple[int, ...] | str, other: tuple[int, ...] | str) -> int:
    """Return how much two sequences share from their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
