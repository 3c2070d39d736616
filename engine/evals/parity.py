"""Drafter parity: two implementations, or two types, draft from the same inputs step by step.

The target writes a greedy continuation once, token by token, and its taps are kept. Both drafters then follow it
as in the draft-verify loop: a round commits the reference's drafts that equal the continuation, and the token
after them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, NamedTuple

from bridge.common import install
from bridge.reports import kinds
from bridge.reports.repetition import first_difference
from engine.dflash import Tapped, load_draft
from engine.dflash.target.embeddings import drafter_scale
from engine.errors import BadInput
from engine.harness.arm import Arm, Turn, interleave
from engine.harness.job import Job, sections
from engine.harness.prompt_sets import Prompt, Workload
from engine.harness.rows import Row
from engine.inject.package import load_drafter
from engine.lm import cache as lm_cache
from engine.models import Pair
from engine.mx import DTYPES, dtype_name, integers, mx, nn, number

KIND = kinds.PARITY
OURS = "engine.dflash"
PACKAGE = "dflash.model_mlx"
TORCH = "engine.dflash.drafter.in_torch"
CHUNK = 512


class Drafted(NamedTuple):
    """A block's tokens, and the logits from which they were chosen, ``[drafts, vocabulary]``; None if unknown."""

    tokens: list[int]
    logits: mx.array | None


# Arguments: the last committed token, the taps since the last call, and the number of drafts.
Draft = Callable[[int, mx.array, int], Drafted]
# One of the two drafters; for each prompt, it creates a function that drafts.
Side = Arm[Draft]


@dataclass(frozen=True)
class Walk:
    """A greedy continuation."""

    length: int  # tokens of the prompt
    tokens: list[int]  # the continuation
    # Taps of the prompt and of the continuation without its last token, `[1, length + tokens - 1, chosen *
    # hidden]`.
    taps: mx.array


def sides_of(pair: Pair, against: str, dtype: str) -> tuple[Side, Side]:
    """Return the reference and the candidate.

    Args:
        pair: with a drafter.
        against: ``package``: the ``dflash`` package and this engine, in the drafter's type. ``float32``: this
            engine in float32 and in ``dtype``. ``torch``: the layers in torch and this engine's, both in float32.
        dtype: ``float16`` or ``bfloat16``.

    Raises:
        BadInput: there is no drafter, or the package is not installed.
        MissingPackage: torch is not installed.
    """
    if pair.draft is None:
        raise BadInput(f"{pair.name} has no drafter", "name one with --draft")
    if against == "package":
        return _package(pair), _own(pair, "candidate", OURS)
    if against == "torch":
        from engine.dflash.drafter.in_torch import VERSION, TorchDrafter

        torch = _own(
            pair, "reference", TORCH, "float32", lambda draft: TorchDrafter(draft, "cpu"), version=VERSION
        )
        return torch, _own(pair, "candidate", OURS, "float32")
    return _own(pair, "reference", OURS, "float32"), _own(pair, "candidate", OURS, dtype)


def _side(
    pair: Pair, role: str, loop: str, start: Callable[[], Draft], dtype: mx.Dtype, **options: Any
) -> Side:
    options["dtype"] = dtype_name(dtype)
    options["embed_scale"] = drafter_scale(pair.draft.config, pair.target)
    name = {"reference": "reference", "candidate": "engine"}[role]
    return Arm(name, role, loop, lambda _: start(), options=options)


def _own(
    pair: Pair, role: str, loop: str, dtype: str | None = None,
    form: Callable[[Any], Any] = lambda draft: draft, **options: Any,
) -> Side:  # fmt: skip
    """Return this engine's drafter in one form. With a type, drafter, embeddings and head all have this type."""
    draft, target = pair.draft, pair.target
    if dtype is not None:
        draft = load_draft(pair.parts["draft"].folder, dtype=DTYPES[dtype])
        draft.config = pair.draft.config  # has the pair's factor of the embeddings
        target = pair.another_target()
        target.set_dtype(DTYPES[dtype])
        loop = f"{loop} {dtype}"
    drafter, type_ = form(draft), draft.fc.weight.dtype

    def start() -> Draft:
        bound = drafter.bind(target)
        context = bound.make_cache()

        def step(bonus: int, taps: mx.array, count: int) -> Drafted:
            cuts = range(CHUNK, taps.shape[1], CHUNK)
            *before, last = mx.split(taps.astype(type_), list(cuts), axis=1)
            for part in before:
                bound.absorb(part, context)
            proposal = bound.propose(bonus, last, context, count)
            logits = None if proposal.candidates is not None else proposal.logits[0].astype(mx.float32)
            return Drafted(integers(proposal.tokens[0]), logits)

        return step

    return _side(pair, role, loop, start, type_, **options)


def check_package() -> None:
    """Raise BadInput if the dflash package is not installed."""
    if util.find_spec("dflash") is None:
        fix = f"compare with float32, or install it {install.how(install.PARITY)}"
        raise BadInput("the dflash package is not installed", fix)


def _package(pair: Pair) -> Side:
    check_package()
    _, draft = load_drafter(pair)
    draft.bind(pair.target)
    draft.embed_scale = drafter_scale(pair.draft.config, pair.target)  # as ours has it
    dtype = draft.fc.weight.dtype

    def start() -> Draft:
        cache = draft.make_cache()

        def step(bonus: int, taps: mx.array, count: int) -> Drafted:
            taps = taps.astype(dtype)
            block = mx.array([[bonus, *[draft.config.mask_token_id] * count]])
            if hasattr(draft, "candidate_selector"):
                tokens, _, _ = draft.propose(block, taps, cache, 0.0, logits_start=1)
                return Drafted(integers(tokens[0]), None)
            logits = draft(block, taps, cache, logits_start=1)[0]
            return Drafted(integers(mx.argmax(logits, axis=-1)), logits.astype(mx.float32))

        return step

    return _side(pair, "reference", PACKAGE, start, dtype, version=metadata.version("dflash"))


def walk(target: nn.Module, layers: Sequence[int], ids: Sequence[int], count: int) -> Walk:
    """Decode ``count`` tokens greedily, one at a time, and keep the taps of some layers."""
    tapped, caches = Tapped(target, list(layers)), lm_cache.make_prompt_cache(target)
    parts: list[mx.array] = []
    for at in range(0, len(ids), CHUNK):
        logits, taps = tapped.forward(mx.array(list(ids[at : at + CHUNK]))[None], caches)
        mx.eval(logits, taps)
        parts.append(taps)
    tokens = [int(number(mx.argmax(logits[0, -1])))]
    while len(tokens) < count:
        logits, taps = tapped.forward(mx.array([tokens[-1:]]), caches)
        tokens.append(int(number(mx.argmax(logits[0, -1]))))
        parts.append(taps)
    return Walk(len(ids), tokens, mx.concatenate(parts, axis=1))


def rounds(walked: Walk, sides: Sequence[Side], block: int, most: int) -> Iterator[dict[str, Any]]:
    """Yield a row (without the prompt's id) for each of at most ``most`` blocks that both sides draft.

    ``block`` is the number of tokens of a block, including the committed one.
    """
    drafters = [side.make(None) for side in sides]
    at, read = 0, 0
    for block_at in range(most):
        if at + block > len(walked.tokens):
            return
        taps = walked.taps[:, read : walked.length + at]
        reference, candidate = (draft(walked.tokens[at], taps, block - 1) for draft in drafters)
        following = walked.tokens[at + 1 : at + block]
        yield {
            "block": block_at,
            "reference": reference.tokens,
            "candidate": candidate.tokens,
            "target": following,
            **_error(reference, candidate),
        }
        read = walked.length + at
        same = first_difference(reference.tokens, following)
        at += (block - 1 if same is None else same) + 1


def accepted(rows: Sequence[Row]) -> int:
    """Return how many of the candidate's drafts the target accepts: in each block, all before the first wrong draft."""
    firsts = [(first_difference(row["candidate"], row["target"]), len(row["target"])) for row in rows]
    return sum(count if at is None else at for at, count in firsts)


def _error(reference: Drafted, candidate: Drafted) -> dict[str, Any]:
    """Return the distance of the logits and, if tokens differ, the reference's difference between their two logits."""
    if reference.logits is None or candidate.logits is None:
        return {}
    errors = {"max_logit_error": mx.abs(reference.logits - candidate.logits).max().item()}
    at = first_difference(reference.tokens, candidate.tokens)
    if at is not None:
        row = reference.logits[at]
        errors["margin"] = (row[reference.tokens[at]] - row[candidate.tokens[at]]).item()
    return errors


def job(
    pair: Pair, sides: tuple[Side, Side], prompts: Sequence[Prompt], config: dict[str, Any],
    *, block: int, blocks: int,
) -> Job:  # fmt: skip
    """Return the job in which both sides draft on every encoded prompt.

    ``block`` is the number of tokens of a block, including the committed one; ``blocks`` limits the blocks of a prompt.
    """

    def measure(turn: Turn[tuple[Side, Side], Prompt]) -> Iterator[Row]:
        walked = walk(pair.target, pair.draft.config.target_layer_ids, turn.prompt.ids, block * blocks + 1)
        return rounds(walked, turn.arm, block, blocks)

    return Job(
        KIND,
        sections(pair, [Workload("texts", prompts, "code", config["prompts"])], sides, oracle=False),
        config,
        turns=list(interleave([sides], prompts)),
        names=lambda turn: {"prompt": turn.prompt.id},
        measure=measure,
    )
