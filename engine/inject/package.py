"""The ``dflash`` package, loaded for a pair, and its answers over our caches.

It leaves hooks on its target, so it gets a model object of its own over the same arrays.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from importlib import util
from typing import Any

from engine.cache.protocol import Cache
from engine.cache.roundtrip import KakeyaLatticeMLXCache
from engine.dflash.generation import Run
from engine.dflash.kinds import DFLASH
from engine.dflash.step import Step
from engine.errors import EngineError
from engine.inject import NAME
from engine.inject.strategy import NONE, Decision, decide, injected, replaced
from engine.lm import cache as lm_cache
from engine.models import Pair
from engine.mx import mx, parameter_bytes


class NotInjectedError(EngineError):
    """The package cannot, or did not, use caches of ours; nothing was generated."""


def load_drafter(pair: Pair) -> tuple[Any, Any]:
    """Return the package's module, and the pair's drafter as the package loads it, in the same type as our drafter."""
    from dflash import model_mlx

    with replaced(model_mlx, "snapshot_download", lambda *_, **__: str(pair.parts["draft"].folder)):
        draft = model_mlx.load_draft(pair.parts["draft"].id)
    draft.set_dtype(pair.draft.fc.weight.dtype)
    return model_mlx, draft


class Package:
    """The package with a pair's target and drafter. It loads the drafter's folder itself, in our drafter's type.

    Attributes:
        decision: how the package gets caches.
        nbytes: the bytes of its own copy of the drafter.

    Raises:
        NotInjectedError: the package is not installed or cannot use our caches, or the pair has no drafter.
    """

    def __init__(self, pair: Pair) -> None:
        if util.find_spec("dflash") is None:
            raise NotInjectedError("the dflash package is not installed", "pip install '.[parity]'")
        if pair.draft is None or pair.draft.kind != DFLASH:
            raise NotInjectedError(f"no DFlash drafter is loaded for {pair.name}")
        self._module, self.draft = load_drafter(pair)
        self.target, self._tokenizer = pair.another_target(), pair.tokenizer
        self.nbytes = parameter_bytes(self.draft)
        self.block = int(self.draft.config.block_size)
        self.decision: Decision = decide(self._module, self.target)
        if self.decision.strategy == NONE:
            raise NotInjectedError("this version of the dflash package takes no caches from callers")

    def stream(
        self, ids: Sequence[int], caches: list[Cache], most: int, *, chunk: int, **sampling: float
    ) -> Generator[Any, None, None]:
        """Yield the package's responses; the first one comes when the prompt has been read.

        The caches are fresh, ``most`` is the number of tokens at most, ``chunk`` that of the prompt to run at once, and
        ``sampling`` is ``temperature``, ``top_p`` and ``top_k``. NotInjectedError if the package would roll these
        caches back wrongly, or did not use them.
        """
        check_caches(caches)
        with injected(self.decision, self._module, self.target, caches) as injection:
            models = (self.target, self.draft, self._tokenizer)
            options = {"max_tokens": most, "prefill_step_size": chunk, **sampling}
            responses = self._module.stream_generate(*models, mx.array(list(ids)), **options)
            first = next(responses, None)  # the caches are taken before the prompt is read
        try:
            _verify(injection.times_taken, caches, len(ids))
            if first is not None:
                yield first
            yield from responses
        finally:
            responses.close()


def check_options(*, guided: bool, min_p: float, drawn_by_seed: bool) -> None:
    """Raise NotInjectedError for options that the package does not have."""
    if guided or min_p:
        raise NotInjectedError("it has no grammars, penalties, biases, log-probabilities or min_p")
    if drawn_by_seed:
        raise NotInjectedError("it cannot repeat a seed")


def rounds(
    package: Package, run: Run, ids: Sequence[int], most: int, *, chunk: int, **sampling: float
) -> Iterator[Step]:
    """Yield the steps of an answer; see ``Package.stream``.

    The package fills the run's caches, which must be fresh. The run, whose clock must run, handles stops and text.

    Raises:
        EngineError: before the first step, if the package does not use these caches.
    """
    responses = package.stream(ids, run.caches, most, chunk=chunk, **sampling)
    first = True
    try:
        for step in steps(responses, package.block, most):
            if not step.tokens:
                continue
            tokens, text = run.take(step.tokens)
            seconds, first = (run.clock.restart() if first else 0.0), False
            yield replace(
                step,
                tokens=tokens,
                text=text,
                accepted=min(step.accepted, len(tokens)),
                drafter=NAME if step.proposed else "none",
                finish_reason=run.finish_reason,
                timing=run.clock.stop(),
                prefill=seconds,
            )
            run.clock.restart()
            if run.finish_reason is not None:
                return
    finally:
        responses.close()


def check_caches(caches: Sequence[Any]) -> None:
    """Raise NotInjectedError for caches that the package's rollback does not know.

    Its rollback of recurrent states patches their class for all users, and it does not recognize a wrapped ring.
    """
    for cache in caches:
        if isinstance(cache, KakeyaLatticeMLXCache):
            if type(cache.inner) is not lm_cache.KVCache:
                raise NotInjectedError("the dflash package cannot roll back a wrapped sliding window")
        elif not cache.is_trimmable():
            raise NotInjectedError("the dflash package would patch recurrent layers for all answers")


def _verify(times_taken: int, caches: Sequence[Any], prompt: int) -> None:
    """Check the caches' content after the prompt, because the decision itself does not prove that they are used."""
    if times_taken != 1:
        raise NotInjectedError(f"the dflash package took the caches {times_taken} times instead of once")
    for cache in caches:
        fired = getattr(cache, "fired", None)
        if cache.offset != prompt or fired == 0 or getattr(cache, "codec_id", None) == "":
            raise NotInjectedError("the dflash package read the prompt into other caches than those it got")


def steps(responses: Iterator[Any], block: int, most: int) -> Iterator[Step]:
    """Turn the package's responses into steps.

    The first token comes from the prompt. A round proposes a block without its first row, or as much as there is
    room for. ``accepted`` in a response counts the target's own token too. The last response may have no token.
    """
    count = 0
    for response in responses:
        tokens = tuple(response.tokens)
        proposed = min(block, most - count + 1) - 1 if tokens and count else 0
        yield Step(
            tokens,
            accepted=min(max(len(tokens) - 1, 0), proposed),
            text=response.text,
            drafter="dflash" if count else "prefill",
            proposed=proposed,
            finish_reason=response.finish_reason,
        )
        count += len(tokens)
