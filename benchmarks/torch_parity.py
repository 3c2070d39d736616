"""Compare the backends on one model: tokens, distributions, codes, cache bytes and speed.

    python benchmarks/torch_parity.py MODEL_FOLDER [--tokens 24]

Both compute in float32, in one process: MLX's preloaded OpenBLAS then serves torch too, unless torch is imported
first (`--torch-first`), which gives it the BLAS that it was built with.
"""

import argparse
import sys
import time

if "--torch-first" in sys.argv:
    import torch

from engine import blas, cache, models
from engine.codec.voronoi import VoronoiCodec
from engine.mx import mx

if "--torch-first" not in sys.argv:
    blas.preload()

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bridge.common import host
from engine.torch import cache_bytes, kakeya_cache
from engine.torch.codecs import rows_of, sides_of

PROMPTS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "The capital of France is",
    "import os\nimport sys\n\n\ndef main():\n",
    "Once upon a time there was a small dog who",
)
SPECS = ("raw", "e8v@4.25", "e8v@6.25", "e8@q38")


def by_torch(net, ids, spec, count):
    """Return the greedy tokens, the logits after each, the cache and the seconds."""
    kept, tokens, logits, began = kakeya_cache(net, spec), [], [], time.perf_counter()
    row = torch.tensor([ids])
    with torch.inference_mode():
        for _ in range(count):
            logits.append(net(row, cache=kept, logits_to_keep=1).logits[0, -1].double().numpy())
            tokens.append(int(logits[-1].argmax()))
            row = torch.tensor([[tokens[-1]]])
    return tokens, logits, kept, time.perf_counter() - began


def by_mlx(target, ids, spec, follow):
    """Return the logits after each token of the other backend's answer, the caches and the seconds."""
    caches, logits, began = cache.make_caches(target, spec), [], time.perf_counter()
    row = mx.array([ids])
    for token in follow:
        out = target(row, cache=caches)[0, -1].astype(mx.float32)
        mx.eval(out)
        logits.append(np.array(out).astype(np.float64))
        row = mx.array([[token]])
    return logits, caches, time.perf_counter() - began


def divergence(first, second):
    """Return the Kullback-Leibler divergence of two rows of logits, in nats."""
    p, q = (x - x.max() - np.log(np.exp(x - x.max()).sum()) for x in (first, second))
    return float((np.exp(p) * (p - q)).sum())


def codes(caches, net_cache, spec):
    """Return the share of equal rows in the first layer, and whether equal vectors give equal rows there."""
    ours, theirs = (
        net_cache.layers[0].keys.numpy()[0],
        np.array(caches[0].keys)[0, :, : net_cache.get_seq_length()],
    )
    x = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)
    side = sides_of(spec)[0]
    same = np.array_equal(
        rows_of(side, 64).encode(torch.from_numpy(x)).numpy(),
        np.array(VoronoiCodec(64, float(spec.split("@")[1])).encode(mx.array(x))),
    )
    return float((ours == theirs).all(-1).mean()), same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--torch-first", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    net = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    target = models.load(options.model, False, dtype="float32").target
    print(f"{host.chip()}, {host.cores()} cores, {host.system()}, one thread of torch {torch.__version__}")
    print(
        f"MLX multiplies with {blas.in_use().name}; torch was imported {'first' if options.torch_first else 'after'}"
    )
    for spec in SPECS:
        equal, kls, speeds, sizes, notes = [], [], [], [], ""
        for prompt in PROMPTS:
            ids = tokenizer(prompt).input_ids
            tokens, ours, kept, seconds = by_torch(net, ids, spec, options.tokens)
            theirs, caches, others = by_mlx(target, ids, spec, tokens)
            equal += [int(row.argmax()) == token for row, token in zip(theirs, tokens, strict=True)]
            kls += [divergence(a, b) for a, b in zip(theirs, ours, strict=True)]
            speeds.append((options.tokens / seconds, options.tokens / others))
            sizes.append(cache_bytes(kept) / (kept.get_seq_length() * 30 * 3 * 64 * 2 * 2))
            if spec.startswith("e8v"):
                share, same = codes(caches, kept, spec)
                notes = f"equal vectors give equal rows: {same}; rows of layer 0 equal: {share:.4f}"
        middle = np.median(np.array(speeds), axis=0)
        print(
            f"{spec:9} tokens equal {sum(equal)} of {len(equal)}, KL mean {np.mean(kls):.2e} max {max(kls):.2e}, "
            f"bytes {np.mean(sizes):.4f} of bfloat16, tokens/s torch {middle[0]:.1f} MLX {middle[1]:.1f} {notes}"
        )


if __name__ == "__main__":
    main()
