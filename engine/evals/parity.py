"""Drafter parity: two implementations, or two types, draft from the same inputs step by step.

The target writes a greedy continuation once, token by token, and its taps are kept. Both drafters then walk
along it as the draft-verify loop would: a round commits the drafts of the reference that the continuation
bears out and the token after them. Neither sees anything that the other does not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, NamedTuple

from engine import install
from engine.dflash import Tapped, load_draft
from engine.dflash.divergence import first_difference
from engine.errors import BadInput
from engine.evals.claims import everywhere
from engine.lm import cache as lm_cache
from engine.measure.journal import Journal
from engine.measure.prompts import Prompt
from engine.measure.stats import exact_interval
from engine.models import Pair
from engine.models.target import DTYPES
from engine.mx import mx, nn

KIND = "kakeya.parity"
OURS = "engine.dflash"
PACKAGE = "dflash.model_mlx"
CHUNK = 512
AGREEMENT = (
    "share of drafted tokens on which both agree, position by position, all blocks together; "
    "interval: exact (Clopper and Pearson), 95 %"
)


class Drafted(NamedTuple):
    """A block's tokens, and the logits they were picked from, ``[drafts, vocabulary]``; None where not known."""

    tokens: list[int]
    logits: mx.array | None


# From the last committed token, the taps since the last call and the number of drafts.
Draft = Callable[[int, mx.array, int], Drafted]


@dataclass(frozen=True)
class Side:
    """One of the two: its place in the report, and what starts it on a prompt."""

    section: dict[str, Any]
    start: Callable[[], Draft]


@dataclass(frozen=True)
class Walk:
    """A greedy continuation.

    Attributes:
        length: tokens of the prompt.
        tokens: the continuation.
        taps: of the prompt and of all its tokens but the last, ``[1, length + tokens - 1, chosen * hidden]``.
    """

    length: int
    tokens: list[int]
    taps: mx.array


def sides_of(pair: Pair, against: str, dtype: str) -> tuple[Side, Side]:
    """Return the reference and the candidate.

    Args:
        pair: with a drafter.
        against: ``package``: the ``dflash`` package and this engine, in the drafter's type. ``float32``: this
            engine in float32 and in ``dtype``.
        dtype: ``float16`` or ``bfloat16``.

    Raises:
        BadInput: no drafter, or the package is not installed.
    """
    if pair.draft is None:
        raise BadInput(f"{pair.name} has no drafter", "name one with --draft")
    if against == "package":
        return _package(pair), _ours(pair, "candidate", None)
    return _ours(pair, "reference", "float32"), _ours(pair, "candidate", dtype)


def _section(role: str, loop: str, **options: Any) -> dict[str, Any]:
    name = {"reference": "reference", "candidate": "engine"}[role]
    return {"name": name, "role": role, "loop": loop, "cache": "raw", "patches": [], "options": options}


def _ours(pair: Pair, role: str, dtype: str | None) -> Side:
    """Return this engine's drafter; with a type, drafter, embeddings and head are all in it."""
    draft, target = pair.draft, pair.target
    if dtype is not None:
        draft = load_draft(pair.parts["draft"].folder, dtype=DTYPES[dtype])
        target = pair.another_target()
        target.set_dtype(DTYPES[dtype])

    def start() -> Draft:
        bound = draft.bind(target)
        context = bound.make_cache()

        def step(bonus: int, taps: mx.array, count: int) -> Drafted:
            taps = taps.astype(draft.fc.weight.dtype)
            cuts = range(CHUNK, taps.shape[1], CHUNK)
            *before, last = mx.split(taps, list(cuts), axis=1)
            for part in before:
                bound.absorb(part, context)
            found = bound.propose(bonus, last, context, count)
            logits = None if found.candidates is not None else found.logits[0].astype(mx.float32)
            return Drafted([int(token) for token in found.tokens[0].tolist()], logits)

        return step

    type_ = str(draft.fc.weight.dtype).removeprefix("mlx.core.")
    return Side(_section(role, OURS if dtype is None else f"{OURS} {dtype}", dtype=type_), start)


def check_package() -> None:
    """See that the dflash package is installed (BadInput)."""
    if util.find_spec("dflash") is None:
        remedy = f"compare with float32, or install it {install.how(install.PARITY)}"
        raise BadInput("the dflash package is not installed", remedy)


def _package(pair: Pair) -> Side:
    check_package()
    from dflash import model_mlx as package

    fetch = package.snapshot_download
    package.snapshot_download = lambda *_, **__: str(pair.parts["draft"].folder)
    try:
        draft = package.load_draft(pair.parts["draft"].id)
    finally:
        package.snapshot_download = fetch
    draft.set_dtype(pair.draft.fc.weight.dtype)
    draft.bind(pair.target)

    def start() -> Draft:
        cache = draft.make_cache()

        def step(bonus: int, taps: mx.array, count: int) -> Drafted:
            taps = taps.astype(draft.fc.weight.dtype)
            block = mx.array([[bonus, *[draft.config.mask_token_id] * count]])
            if hasattr(draft, "candidate_selector"):
                tokens, _, _ = draft.propose(block, taps, cache, 0.0, logits_start=1)
                return Drafted([int(token) for token in tokens[0].tolist()], None)
            logits = draft(block, taps, cache, logits_start=1)[0]
            return Drafted([int(i) for i in mx.argmax(logits, axis=-1).tolist()], logits.astype(mx.float32))

        return step

    version = metadata.version("dflash")
    type_ = str(draft.fc.weight.dtype).removeprefix("mlx.core.")
    return Side(_section("reference", PACKAGE, version=version, dtype=type_), start)


def walk(target: nn.Module, layers: Sequence[int], ids: Sequence[int], count: int) -> Walk:
    """Decode ``count`` tokens greedily, one at a time, and keep the taps of layers."""
    tapped, caches = Tapped(target, list(layers)), lm_cache.make_prompt_cache(target)
    parts: list[mx.array] = []
    for at in range(0, len(ids), CHUNK):
        logits, taps = tapped.forward(mx.array(ids[at : at + CHUNK])[None], caches)
        mx.eval(logits, taps)
        parts.append(taps)
    tokens = [int(mx.argmax(logits[0, -1]).item())]
    while len(tokens) < count:
        logits, taps = tapped.forward(mx.array([tokens[-1:]]), caches)
        tokens.append(int(mx.argmax(logits[0, -1]).item()))
        parts.append(taps)
    return Walk(len(ids), tokens, mx.concatenate(parts, axis=1))


def rounds(made: Walk, sides: Sequence[Side], block: int, most: int) -> Iterator[dict[str, Any]]:
    """Yield a row, but for its prompt, for each block that both drafters draft along a continuation.

    Args:
        made: the continuation.
        sides: reference and candidate.
        block: tokens of a block, the committed one among them.
        most: blocks.
    """
    drafters = [side.start() for side in sides]
    at, read = 0, 0
    for number in range(most):
        if at + block > len(made.tokens):
            return
        taps = made.taps[:, read : made.length + at]
        reference, candidate = (draft(made.tokens[at], taps, block - 1) for draft in drafters)
        yield {
            "block": number,
            "reference": reference.tokens,
            "candidate": candidate.tokens,
            **_error(reference, candidate),
        }
        read = made.length + at
        following = made.tokens[at + 1 : at + block]
        same = first_difference(reference.tokens, following)
        at += (block - 1 if same is None else same) + 1


def _error(reference: Drafted, candidate: Drafted) -> dict[str, Any]:
    """Return how far the logits lie apart, and where tokens part how near a tie that was to the reference."""
    if reference.logits is None or candidate.logits is None:
        return {}
    found = {"max_logit_error": mx.abs(reference.logits - candidate.logits).max().item()}
    at = first_difference(reference.tokens, candidate.tokens)
    if at is not None:
        row = reference.logits[at]
        found["margin"] = (row[reference.tokens[at]] - row[candidate.tokens[at]]).item()
    return found


def measure(
    pair: Pair,
    sides: tuple[Side, Side],
    prompts: Sequence[Prompt],
    block: int,
    blocks: int,
    journal: Journal,
    on_run: Callable[[], None] = lambda: None,
) -> None:
    """Compare on every prompt, but for those that the journal holds, and append the rows to it."""
    layers = pair.draft.config.target_layer_ids
    for prompt in prompts:
        if (prompt.id, 0) not in journal:
            made = walk(pair.target, layers, prompt.ids, block * blocks + 1)
            for row in list(rounds(made, sides, block, blocks)):
                journal.append({"prompt": prompt.id} | row)
        on_run()


def claims(rows: Sequence[dict[str, Any]], prompts: Sequence[Prompt]) -> list[dict[str, Any]]:
    """Return the agreement over all drafted tokens."""
    pairs = [a == b for row in rows for a, b in zip(row["reference"], row["candidate"], strict=True)]
    return [
        {
            "name": "agreement",
            "value": sum(pairs) / len(pairs),
            "interval": list(exact_interval(sum(pairs), len(pairs))),
            "definition": AGREEMENT,
            "where": everywhere([prompt.id for prompt in prompts]),
        }
    ]
