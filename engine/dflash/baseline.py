"""Plain decoding, in the same steps as speculative decoding: ours, and mlx-lm's own as the opponent."""

import time
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any

from engine.cache.protocol import Cache
from engine.dflash.loop import stream_generate
from engine.dflash.sampling import Sampling
from engine.dflash.step import Step, Timing
from engine.dflash.stops import Stops
from engine.errors import BadInput
from engine.mx import mx, nn
from engine.tokens import Tokenizer, encode


def incremental(
    target: nn.Module, tokenizer: Tokenizer, prompt: str | Sequence[int], *, max_tokens: int, **options: Any
) -> Iterator[Step]:
    """Decode token by token over one cache; options are those of :func:``stream_generate``.

    Raises:
        BadInput: see :func:``stream_generate``.
    """
    return stream_generate(
        target, None, tokenizer, prompt, max_tokens=max_tokens, block_size=1, lookup=False, **options
    )


def native(
    target: nn.Module,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    *,
    max_tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    stop: str | Sequence[str] = (),
    stop_tokens: Collection[int] | None = None,
    caches: list[Cache] | None = None,
    prefill_chunk: int = 512,
) -> Iterator[Step]:
    """Decode with mlx-lm's ``generate_step`` as it is: the strongest baseline.

    It differs from :func:``incremental`` in what it leaves and how it draws: afterwards the caches hold the last
    token too, and one more where the iterator was left early; draws come from MLX's global state, and
    mlx-lm filters before it applies the temperature.

    Raises:
        BadInput: a value out of its range, an empty prompt.
    """
    from engine.lm import generate_step, make_sampler

    Sampling(temperature, top_k, top_p, min_p)
    ids = encode(tokenizer, prompt)
    if max_tokens < 1:
        raise BadInput(f"max_tokens is {max_tokens}", "at least 1")
    stream = generate_step(
        mx.array(ids),
        target,
        max_tokens=max_tokens,
        sampler=make_sampler(temp=temperature, top_p=top_p, min_p=min_p, top_k=top_k),
        prompt_cache=caches,
        prefill_step_size=prefill_chunk,
    )
    return _steps(stream, Stops(tokenizer, stop_tokens, stop), max_tokens)


def _steps(stream: Generator[tuple[int, mx.array], None, None], stops: Stops, room: int) -> Iterator[Step]:
    start, prefill = time.perf_counter(), 0.0
    for n, (token, _) in enumerate(stream, 1):
        verified = time.perf_counter()
        cut = stops.take([token])
        reason = "stop" if cut.stopped else "length" if n == room else None
        text = cut.text + (stops.flush() if reason == "length" else "")
        took, rest = verified - start, time.perf_counter() - verified
        if n == 1:  # mlx-lm reads the prompt on the way to the first token
            prefill, took = took, 0.0
        timing = Timing(verify=took, overhead=rest)
        yield Step(
            cut.tokens, text=text, finish_reason=reason, timing=timing, syncs=n, prefill=prefill * (n == 1)
        )
        if reason:
            stream.close()
            return
        start = time.perf_counter()
