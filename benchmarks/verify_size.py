"""How the cost of verifying a block falls as the model grows, on random weights.

    python benchmarks/verify_size.py [--params 5,100,300,1000] [--context 128] [--repeats 5]

Targets have the Qwen3 architecture in float32. A drafter has two layers of its target's width. Random weights accept no
draft, so only costs are measured: a plain step, passes over 2 to 16 tokens, and 7 drafts. The last columns follow from
them by arithmetic: how many times as fast as plain decoding a loop is whose rounds commit 2, 3 or 4 tokens. Times are
medians. The arms of one size take turns; sizes come one after the other.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from common import print_machine

from bridge.common import host
from engine import blas_speed
from engine.cache import make_caches
from engine.dflash.drafter.model import DFlashDrafter
from engine.dflash.rollback import rollback_for
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.mx import mx, nn, tree
from engine.train.drafter.init import draft_config

qwen3: Any = importlib.import_module("mlx_lm.models.qwen3")  # after the engine, which loads a fast BLAS

# Millions of parameters, about -> hidden size, layers, heads, KV heads, MLP. Heads of 64; 16,000 tokens.
SHAPES = {
    5: (256, 8, 4, 2, 512),
    100: (768, 12, 12, 4, 2048),
    300: (1280, 16, 20, 4, 3584),
    1000: (2048, 22, 32, 8, 5632),
}
VOCABULARY = {5: 2048}
TAUS = (2, 3, 4)
BLOCK = 8
NEEDED = 12  # bytes of memory for each parameter, at least
LENGTHS = (1, 2, 4, BLOCK, 16)


def target_of(size: int) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model with random weights, and its configuration."""
    hidden, layers, heads, kv_heads, mlp = SHAPES[size]
    config = {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY.get(size, 16_000),
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "rope_theta": 10_000.0,
        "head_dim": 64,
        "tie_word_embeddings": True,
    }
    mx.random.seed(size)
    model = qwen3.Model(qwen3.ModelArgs(**config))
    mx.eval(model.parameters())
    return model, config


def medians(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each, which take turns; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in seconds.items()}


def measure(size: int, context: int, repeats: int) -> str:
    """Return the line of one size."""
    target, config = target_of(size)
    parameters = sum(value.size for _, value in tree.tree_flatten(target.parameters()))
    caches = make_caches(target, "raw")
    rollback = rollback_for(caches, model=target)
    model = rollback.prepare(quick_copy(target))
    rollback.forward(model, mx.arange(context)[None])
    rollback.commit(context)
    mx.eval([cache.state for cache in caches])

    def verify(length: int) -> Callable[[], None]:
        tokens = mx.arange(length)[None]

        def run() -> None:
            mx.argmax(rollback.forward(model, tokens), axis=-1).tolist()
            rollback.commit(0)

        return run

    drafter = DFlashDrafter(draft_config(config, 0, block=BLOCK))
    mx.eval(drafter.parameters())
    bound = drafter.bind(target)
    read = bound.make_cache()
    bound.absorb(mx.zeros((1, context, drafter.config.taps_size)), read)
    taps = mx.zeros((1, 1, drafter.config.taps_size))

    def draft() -> None:
        bound.propose(1, taps, read, BLOCK - 1).tokens.tolist()

    found = medians(
        {**{str(length): verify(length) for length in LENGTHS}, "draft": draft},
        repeats,
    )
    plain = found["1"]
    ratios = [f"{found[str(length)] / plain:9.2f}" for length in LENGTHS[1:]]
    cost = (found[str(BLOCK)] + found["draft"]) / plain
    gains = [f"{tau / cost:7.2f}" for tau in TAUS]
    return (
        f"{parameters / 1e6:8.0f} {plain * 1e3:9.1f} "
        + " ".join(ratios)
        + f" {found['draft'] / plain:7.2f} "
        + " ".join(gains)
    )


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--params", default=",".join(map(str, SHAPES)), help="millions, of those above")
    parser.add_argument("--context", type=int, default=128, help="tokens in the caches")
    parser.add_argument("--repeats", type=int, default=5, help="counted passes of each")
    options = parser.parse_args()
    print_machine()
    bound = blas_speed.in_use()
    print(f"BLAS: {bound.name}, {bound.gflops} GFLOP/s")
    lengths = " ".join(f"verify({length})".rjust(9) for length in LENGTHS[1:])
    taus = " ".join(f"tau {tau}".rjust(7) for tau in TAUS)
    print(f"millions   plain ms {lengths}   draft {taus}   (costs in plain steps)")
    for size in map(int, options.params.split(",")):
        if NEEDED * size * 1e6 > host.memory_bytes():
            print(f"{size:8} left out: the machine has too little memory")
            continue
        print(measure(size, options.context, options.repeats), flush=True)
        mx.clear_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
