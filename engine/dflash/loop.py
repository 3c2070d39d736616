"""Speculative decoding: draft, verify, keep the tokens that the target agrees with."""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.dflash.generation import LOOPS, Run, block_limits
from engine.dflash.interrupts import whole
from engine.dflash.propose.adaptive import Adaptive, Fixed, Policy, RoundPlan
from engine.dflash.propose.costs import PLAIN, Nominal
from engine.dflash.propose.lookup import Lookup
from engine.dflash.propose.proposer import Proposer
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.step import Step
from engine.dflash.stops import Stops
from engine.dflash.target.context import check_ids, room
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.tokens import Tokenizer, encode


def stream_generate(
    target: nn.Module,
    draft: Any,
    tokenizer: Tokenizer | None,
    prompt: str | Sequence[int],
    *,
    max_tokens: int,
    block_size: int | None = None,
    temperature: float = 0.0,
    caches: list[Cache] | None = None,
    seed: int | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    stop: str | Sequence[str] = (),
    stop_tokens: Collection[int] | None = None,
    rollback: str = "auto",
    lookup: bool = True,
    adaptive: bool | Policy = True,
    prefill_chunk: int = 512,
    loop: str = "lazy",
) -> Generator[Step, None, None]:
    """Decode after a prompt, with several tokens per round if drafts are accepted. Closing the iterator early is safe.

    Drafts and policies never change the target's tokens. Greedy tokens equal the tokens of plain decoding on the same
    kind of cache, except for rounding; sampled tokens follow the target's distribution. A block rounds otherwise than
    single rows. In a packed cache, a key or value between two codes may then get the other code, which can change a
    token if two are nearly equally likely. Afterwards, and whenever the iterator is closed, the caches hold the prompt
    and all yielded tokens except the last. Ctrl-C takes effect after the current round's step was yielded or, while the
    prompt is read, between two chunks.

    Args:
        target: an mlx-lm model.
        draft: a drafter for it (``engine.dflash.load_draft``), or None.
        tokenizer: encodes the prompt and decodes the answer; None, with a prompt of ids, returns no text.
        prompt: text or token ids, at least one. It continues the content of ``caches``.
        max_tokens: the most tokens to decode, at least 1. The end of the model's context ends decoding earlier.
        block_size: the most rows to verify at once, including the last committed token's; 1 decodes plainly.
            None uses the drafter's own size for its drafts, and up to 16 for looked-up drafts.
        temperature: 0 is greedy.
        caches: of ``engine.cache.make_caches``; None creates raw ones. They are advanced.
        seed: makes draws repeatable. They depend on the adaptive policy's decisions, so with a seed and a
            temperature it uses nominal costs instead of measured ones.
        top_p: see ``Sampling``.
        top_k: see ``Sampling``.
        min_p: see ``Sampling``.
        stop: strings that end the answer, and are not part of it.
        stop_tokens: tokens that end the answer, as its last token; None uses the tokenizer's.
        rollback: see ``engine.dflash.rollback.rollback_for``.
        lookup: whether to draft from the text itself too.
        adaptive: whether to choose drafter and block size by their benefit; False always drafts the whole block. An
            existing policy continues with what it has learned.
        prefill_chunk: tokens of the prompt to run at once.
        loop: how a round's graphs are computed, without effect on the tokens. ``lazy`` queues the draft, then
            the verification after it, and waits once. ``fused`` computes both as one graph and waits once.
            ``two-phase`` waits for the draft before it queues the verification, so that both can be timed.
            ``eager`` also waits for each of the target's choices, one after another; greedy only. On a CPU,
            all except ``fused`` start to compute the target's layers while the graph is built.

    Raises:
        BadInput: a value is out of its range; the prompt is empty, does not fit the model's context, or has tokens
            that the model lacks; or the drafter is for another target.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p)
    ids = encode(tokenizer, prompt)
    check_ids(target, ids)
    fitting = room(target, _length(caches) + len(ids))
    if loop not in LOOPS:
        raise BadInput(f"no loop {loop!r}", f"one of {', '.join(LOOPS)}")
    if loop == "eager" and temperature > 0:
        raise BadInput("the eager loop compares greedy choices", "use temperature 0 or another loop")
    for name, value in (("max_tokens", max_tokens), ("prefill_chunk", prefill_chunk)):
        if value < 1:
            raise BadInput(f"{name} is {value}", "at least 1")
    proposer = Proposer(draft, target, _length(caches)) if draft is not None else None
    blocks = block_limits(proposer, lookup=lookup, size=block_size)
    if blocks[0] < 1:
        raise BadInput(
            f"block_size is {block_size}", "a block of 1 decodes plainly, one of 2 and more verifies drafts"
        )
    if caches is None:
        caches = make_caches(target, "raw")
    run = Run(
        target,
        caches,
        rollback=rollback_for(caches, rollback, target),
        proposer=proposer,
        lookup=Lookup() if lookup and blocks[0] > 1 else None,
        sampler=Sampler(sampling, seed),
        stops=Stops(tokenizer, stop_tokens, stop),
        policy=_policy(adaptive, repeatable=seed is not None and temperature > 0),
        room=max_tokens if fitting is None else min(max_tokens, fitting),
        blocks=blocks,
        loop=loop,
    )
    return _decode(run, ids, prefill_chunk)


def _decode(run: Run, ids: list[int], chunk: int) -> Generator[Step, None, None]:
    with run.closing():
        run.clock.restart()
        for _ in run.reading(ids, chunk):
            pass
        yield from whole(rounds(run))


def rounds(run: Run) -> Iterator[Step]:
    """Yield the rounds of a run that has read its prompt, until its answer ends."""
    while run.finish_reason is None:
        plan = run.plan()
        if plan.drafter == PLAIN:
            yield from plain(run, plan)
        else:
            yield speculate(run, plan)
            run.clock.restart()


def speculate(run: Run, plan: RoundPlan) -> Step:
    """Run one round: draft, verify all drafts in one forward pass, keep those before the first rejected one."""
    match = run.match
    drafts, drawn_from = run.propose(plan)
    plan = replace(plan, size=drafts.shape[1])  # a drafter may be unsure of the rest
    run.clock.lap("draft")
    verified = mx.concatenate([run.pending, drafts], axis=1)
    logits, taps = run.forward(verified)
    run.clock.lap("verify")
    n, last, proposed = run.accept(logits, drafts, drawn_from)
    run.clock.lap("wait")
    tokens, text = run.take([*proposed[:n], last])
    run.keep(len(tokens), taps, verified)  # the pending token's row, and those of all tokens but the last
    return run.report(plan, match, n, tokens, text)


def plain(run: Run, plan: RoundPlan, going: Callable[[], bool] = lambda: True) -> Iterator[Step]:
    """Decode token by token. Each forward pass is queued before the previous token is read.

    Such a pass is an open round: it is taken back if its token turns out to be the last. ``going`` is called before
    each token except the first, and returns whether to decode it.
    """
    token, _ = run.sampler.draw(run.advance(run.pending)[:, -1])
    for remaining in range(plan.size - 1, -1, -1):
        ahead = remaining > 0 and going() and not run.wants_drafts
        if ahead:
            logits, taps = run.forward(token[None])
            following, _ = run.sampler.draw(logits[:, -1])
            mx.async_eval(following)
        run.clock.lap("verify")
        taken_ids = run.read(token)
        run.clock.lap("wait")
        tokens, text = run.take(taken_ids)
        yield run.report(plan, run.match, 0, tokens, text)
        run.clock.restart()
        if run.finish_reason or not ahead:
            return
        run.keep(1, taps, token[None])
        token = following


def _policy(adaptive: bool | Policy, *, repeatable: bool) -> Policy:
    if not isinstance(adaptive, bool):
        return adaptive
    if not adaptive:
        return Fixed()
    return Adaptive(Nominal() if repeatable else None)


def _length(caches: list[Cache] | None) -> int:
    """Return the number of tokens in the caches."""
    return max((getattr(cache, "offset", 0) for cache in caches or ()), default=0)
