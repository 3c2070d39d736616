"""Live bytes and peak memory of each KV cache, reading a prompt's last chunk and decoding a token.

    python benchmarks/codec_memory.py [--tokens 1024,8192,32768]

The layers form a chain, as in a model: a layer's queries, keys and values wait for the output of the layer before.
Caches are filled in chunks; then the peak is taken over one further chunk of 256 tokens, and over one token, with
attention. Peaks count what MLX has allocated, the caches of all layers included.
"""

import argparse
import sys

from bridge.common import host
from engine.attention.router import scaled_dot_product_attention
from engine.cache.packed import PackedKVCache
from engine.lm import cache as lm_cache
from engine.mx import mx

CACHES = {
    "raw bf16": lm_cache.KVCache,
    "mlx 8 bit g64": lambda: lm_cache.QuantizedKVCache(64, 8),
    "mlx 4 bit g64": lambda: lm_cache.QuantizedKVCache(64, 4),
    "e8v@6.25": lambda: PackedKVCache("e8v@6.25:fast", views=True),
    "e8v@4.25": lambda: PackedKVCache("e8v@4.25:fast", views=True),
    "e8v@2.25": lambda: PackedKVCache("e8v@2.25:fast", views=True),
}


def measure(make, tokens, args):
    """Return the bytes of all layers' caches at so many tokens, and the peaks of the last chunk and token."""
    mx.random.seed(0)
    caches = [make() for _ in range(args.layers)]
    fill(caches, tokens - args.chunk - 1, args)
    peaks = [step(caches, rows, args) for rows in (args.chunk, 1)]
    return sum(c.nbytes for c in caches), *peaks


def step(caches, rows, args):
    """Let ``rows`` new tokens through all layers; returns the peak in bytes."""
    mx.clear_cache()
    mx.reset_peak_memory()
    x = mx.zeros((1, args.heads, rows, args.dim), mx.bfloat16)
    for cache in caches:
        x = attend(cache, x, rows, args)
    mx.eval(x, [c.state[1:] if isinstance(c, PackedKVCache) else c.state for c in caches])
    return mx.get_peak_memory()


def attend(cache, x, rows, args):
    """One layer: new keys and values, then attention."""
    queries = x + mx.random.normal((1, args.heads, rows, args.dim)).astype(mx.bfloat16)
    mask = None if rows == 1 else "causal"
    new = mx.depends(fresh(rows, args), [x])
    return scaled_dot_product_attention(queries, *cache.update_and_fetch(*new), cache, args.dim**-0.5, mask)


def fresh(rows, args):
    shape = (1, args.kv_heads, rows, args.dim)
    return [mx.random.normal(shape).astype(mx.bfloat16) for _ in range(2)]


def fill(caches, tokens, args):
    """Fill caches up to ``tokens``, without attention."""
    for cache in caches:
        held = 0
        while held < tokens:
            rows = min(args.chunk, tokens - held)
            cache.update_and_fetch(*fresh(rows, args))
            mx.eval([x for x in cache.state if isinstance(x, mx.array)], cache.keys, cache.values)
            held += rows


def parsed(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="1024,8192")
    parser.add_argument("--only", default=",".join(CACHES), help="names of caches, with commas")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--chunk", type=int, default=256)
    return parser.parse_args(argv)


def main():
    args = parsed()
    print(f"{host.chip()}, {host.system()}, mlx {host.version('mlx')}, {mx.default_device()}")
    print(f"{args.layers} layers, {args.heads} heads over {args.kv_heads}, head size {args.dim}; MiB")
    print(f"{'cache':14} {'tokens':>7} {'live':>8} {'of raw':>7} {'prefill':>8} {'decode':>8} peaks")
    for tokens in map(int, args.tokens.split(",")):
        raw = None
        for name, make in ((name, CACHES[name]) for name in args.only.split(",")):
            live, prefill, decode = measure(make, tokens, args)
            raw = raw or live
            mib = [f"{x / 2**20:.1f}" for x in (live, prefill, decode)]
            print(f"{name:14} {tokens:7} {mib[0]:>8} {live / raw:7.1%} {mib[1]:>8} {mib[2]:>8}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
