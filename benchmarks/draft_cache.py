"""Measure what packing the drafter's context would cost: accepted drafts, and bytes a token.

    python benchmarks/draft_cache.py [--model NAME] [--prompts SET] [--count N] [--tokens N]

Keys and values of the drafter go through a codec and back before they are kept, so drafts are those of a packed
context. Decoding is greedy, always drafts the whole block, and looks nothing up: equal runs print equal lines. The
target's tokens never depend on its drafter, so only the number of accepted drafts can change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from common import print_machine

from bridge.reports.cache_spec import parse
from engine import cache, dflash, models
from engine.codec.kinds import make_codec
from engine.dflash.drafter.context import LayerContext
from engine.harness import prompt_sets
from engine.mx import mx

DRAFT_SPECS = ("raw", "e8v@4.25", "e8v@3.25", "e8v@2.25", "affine@4g64")
TARGET_SPECS = ("raw", "e8v@4.25")
BFLOAT16_BYTES = 2


@contextmanager
def packed_drafts(spec: str) -> Iterator[None]:
    """Let every drafter keep what this codec would keep of its keys and values."""
    original = LayerContext.put

    def put(self: LayerContext, keys: mx.array, values: mx.array, n_new: int) -> tuple[mx.array, mx.array]:
        coded = [
            mx.concatenate([through(x[:, :, :n_new], spec), x[:, :, n_new:]], axis=2) for x in (keys, values)
        ]
        return original(self, *coded, n_new)

    LayerContext.put = put  # type: ignore[method-assign]
    try:
        yield
    finally:
        LayerContext.put = original  # type: ignore[method-assign]


def through(x: mx.array, spec: str) -> mx.array:
    """Return vectors after a codec has encoded and decoded them."""
    if spec == "raw" or not x.shape[2]:
        return x
    codec = make_codec(parse(spec), x.shape[-1])
    return codec.decode(codec.encode(x), x.dtype).reshape(x.shape)


def bytes_a_token(draft: dflash.DFlashDrafter, spec: str) -> int:
    """Return the bytes that a token takes in the drafter's context; raw is bfloat16."""
    config = draft.config
    row = config.head_dim * BFLOAT16_BYTES
    if spec != "raw":
        row = make_codec(parse(spec), config.head_dim).row_bytes
    return 2 * row * config.num_key_value_heads * config.num_hidden_layers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", default="humaneval", help="a set of prompts (default humaneval)")
    parser.add_argument("--count", type=int, default=4, help="how many of its prompts (default 4)")
    parser.add_argument("--tokens", type=int, default=48, help="tokens to decode after each (default 48)")
    options = parser.parse_args()
    print_machine()
    target, draft, tokenizer = models.load(options.model)
    assert draft, f"{options.model} has no drafter"
    workload = prompt_sets.read_set(options.prompts, options.count, options.prompts)
    prompts = prompt_sets.encode(workload.prompts, tokenizer, chat=False)
    print(f"{options.model}, {len(prompts)} prompts of {options.prompts}, {options.tokens} tokens each")
    raw = bytes_a_token(draft, "raw")
    for target_spec in TARGET_SPECS:
        first = 0
        for spec in DRAFT_SPECS:
            stats = dflash.Stats()
            with packed_drafts(spec):
                for prompt in prompts:
                    steps = dflash.stream_generate(
                        target,
                        draft,
                        None,
                        prompt.ids,
                        max_tokens=options.tokens,
                        caches=cache.make_caches(target, target_spec),
                        stop_tokens=(),
                        lookup=False,
                        adaptive=False,
                    )
                    for step in steps:
                        stats.add(step)
            first = first or stats.accepted
            size = bytes_a_token(draft, spec)
            print(
                f"target {target_spec:9} drafter {spec:12} {stats.accepted} of {stats.proposed} drafts accepted "
                f"({stats.accepted / first:.3f} of raw's), {stats.verified_tokens / stats.verify_steps:.3f} tokens a "
                f"round, {size} bytes a token ({size / raw:.3f} of bfloat16)",
                flush=True,
            )


if __name__ == "__main__":
    main()
