"""Measure the torch codec by the vector, and generation over packed codes by the step, beside raw caches.

    python benchmarks/torch_cache.py [MODEL_FOLDER] [--device cpu|mps|cuda]

Without a folder, a small model with random weights takes the steps. Arms take turns; a figure is the median of its
rounds, with the fastest and the slowest beside it. On a CPU, the processor's time counts, all threads together, which
other programs disturb least; a step over codes is split into decoding them and all else.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from bridge.common import host
from engine.codec.spec import EFFORTS, Layout
from engine.torch import cache_bytes, decoder, encoder, kakeya_cache
from engine.torch.codecs import VoronoiRows
from engine.torch.view import PackedView

DIM, ROUNDS = 128, 5
SPECS = ("raw", "e8v@4.25", "e8v@4.25:fast", "e8@q38")
DECODED = "e8v@4.25, decoded"  # the arm that keeps its decoded vectors


def timed(arms, rounds, device):
    """Return each arm's seconds, of the processor on a CPU; the arms take turns."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds = {name: [] for name in arms}
    for name, arm in [*arms.items()] * (rounds + 1):
        start = clock()
        arm()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds[name].append(clock() - start)
    return {name: each[1:] for name, each in seconds.items()}


def show(name, seconds, each, unit):
    middle, least, most = (f(seconds) / each for f in (statistics.median, min, max))
    print(f"  {name:34} {middle * 1e3:9.4f} ms a {unit}  ({least * 1e3:.4f} to {most * 1e3:.4f})")


def vectors(device, count):
    """Print the time to encode and decode a vector: by torch, and on a CPU also by NumPy."""
    x = torch.randn(count, DIM, generator=torch.Generator().manual_seed(0)).to(device)
    print(f"\n{count} vectors of {DIM} values at a time, 4.25 bits, normal effort")
    layout, search, rows = Layout(DIM, 4), EFFORTS["normal"][4], VoronoiRows(DIM, 4, "normal")
    packed = rows.encode(x)
    arms = {
        "torch encodes": lambda: encoder.encode(x, layout, search),
        "torch decodes": lambda: decoder.decode(packed, layout),
    }
    if device == "cpu":
        arms |= {"numpy encodes": lambda: rows.encode(x), "numpy decodes": lambda: rows.decode(packed)}
    for name, seconds in timed(arms, ROUNDS, device).items():
        show(name, seconds, count, "vector")


def steps(model, device, context, count):
    """Print the time of a new token after a prompt, and the cache's share of the bytes of bfloat16."""
    print(f"\n{count} tokens after {context}")
    ids = torch.randint(3, 100, (1, context), generator=torch.Generator().manual_seed(1)).to(device)
    caches = {spec: kakeya_cache(model, spec) for spec in SPECS}
    caches[DECODED] = kakeya_cache(model, "e8v@4.25", decoded=1 << 34)
    with torch.inference_mode():
        for cache in caches.values():
            model(ids, cache=cache, logits_to_keep=1)

        def decode(cache):
            for _ in range(count):
                model(ids[:, :1], cache=cache, logits_to_keep=1)
            cache.crop(-count)

        arms = {spec: lambda cache=cache: decode(cache) for spec, cache in caches.items()}
        raw16 = cache_bytes(caches["raw"]) * 2 / model.dtype.itemsize
        times = timed(arms, 3, device)
        for spec, seconds in times.items():
            ratio = statistics.median(seconds) / statistics.median(times["raw"])
            share = cache_bytes(caches[spec]) / raw16
            show(f"{spec} ({share:.4f}), {ratio:.2f} of raw", seconds, count, "token")
        if device == "cpu":
            for spec, cache in caches.items():
                if spec in ("raw", DECODED):
                    continue
                seconds = timed({"decoding": lambda cache=cache: decode_all(cache)}, 3, device)["decoding"]
                show(f"{spec}, decoding alone", seconds, 1, "token")


def decode_all(cache):
    """Decode all rows of a cache once, in the tiles that attention reads."""
    for layer in cache.layers:
        for rows, coder, dim in zip((layer.keys, layer.values), layer.coders, layer.dims, strict=True):
            for _ in PackedView(rows, coder, dim).tiles():
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--contexts", type=int, nargs="*", default=[64, 512, 2048])
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    }
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=6, vocab_size=1024))
    model = model.eval().to(options.device)
    machine = f"{host.chip()}, {host.cores()} cores, {host.system()}"
    print(f"{machine}, torch {torch.__version__} ({torch.get_num_threads()} threads) on {options.device}")
    for count in (6, 512):
        vectors(options.device, count)
    for context in options.contexts:
        steps(model, options.device, context, 8)


if __name__ == "__main__":
    main()
