"""How much rounding tells a block of rows from single rows, and whether that ever changes a token.

    python -m benchmarks.exactness                          # random models, as the tests use them
    python -m benchmarks.exactness tiny --kv raw --kv e8v@4.25
    python -m benchmarks.exactness smollm2-135m --kv raw --dtype bfloat16 --tokens 256 --humaneval
    python -m benchmarks.exactness smollm2-135m --kv raw --bits 4 --tokens 1024 --humaneval

Each prompt, of random tokens or of HumanEval, is decoded plainly as mlx-lm does and with drafts that are right for 0 to
15 tokens, on caches of each kind. Then what was decoded is read again, in single rows and in rows of eight: the largest
difference of a logit is the rounding; a tie is a place where the two likeliest tokens are no further apart than that.
"""

import argparse

import numpy as np

from engine import cache as kv
from engine.dflash import stream_generate
from engine.dflash.divergence import classify, last_logits
from engine.evals.solutions import problems
from engine.lm import utils as lm_utils
from engine.models import load
from engine.mx import mx
from tests.engine import small_models as models
from tests.engine.oracle import Oracle

RIGHT = (3, 0, 7, 1, 15, 2, 5, 4, 6)


LENGTHS = (64, 256, 1024)


def targets(name, dtype, bits):
    if name:
        pair = load(name, False, dtype=dtype)
        target = pair.target
        if bits:
            target, _ = lm_utils.quantize_model(target, {}, group_size=64, bits=bits)
        return {
            ", ".join(filter(None, (name, dtype, bits and f"{bits}-bit weights"))): (target, pair.tokenizer)
        }
    return {
        "qwen3, random": (models.qwen3(layers=4), None),
        "gemma3, random, window 16": (models.gemma3(), None),
    }


def prompts_of(args, vocabulary, tokenizer):
    """Return token ids: openings of HumanEval's functions, or random ones."""
    if args.humaneval:
        asked = problems.read(args.prompts)
        return [list(prompt.ids) for prompt in problems.prompts_of(asked, tokenizer, chat=False)]
    seeds = range(args.prompts)
    return [np.random.default_rng(seed).integers(0, vocabulary, args.length).tolist() for seed in seeds]


def row(target, tokenizer, spec, args):
    def caches():
        return kv.make_caches(target, spec)

    vocabulary = target(mx.array([[0]])).shape[-1]
    rounding, margins, partings = [], [], []
    for prompt in prompts_of(args, vocabulary, tokenizer):
        steps = stream_generate(
            target, None, None, prompt, max_tokens=args.tokens, block_size=1, caches=caches()
        )
        known = [token for step in steps for token in step.tokens]
        steps = stream_generate(
            target,
            Oracle([*prompt, *known], RIGHT, vocabulary=vocabulary),
            None,
            prompt,
            max_tokens=args.tokens,
            caches=caches(),
            lookup=False,
            adaptive=False,
        )
        found = [token for step in steps for token in step.tokens]
        parted = classify(target, caches, prompt, found, known)
        partings += [parted] if parted else []
        single, block = (
            last_logits(target, caches(), [*prompt, *known], len(prompt), rows=rows, chunk=512)
            for rows in (1, 8)
        )
        rounding.append(mx.abs(single - block).max().item())
        logits = np.sort(
            np.array(target(mx.array([[*prompt, *known]]))[0, len(prompt) - 1 :].astype(mx.float32)), axis=-1
        )
        margins.append(logits[:, -1] - logits[:, -2])
    ties = (np.concatenate(margins) < max(rounding)).mean()
    return max(rounding), np.median(rounding), ties, partings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--kv", action="append")
    parser.add_argument("--dtype", help="type of the named model, such as bfloat16")
    parser.add_argument("--bits", type=int, help="quantize the named model's weights, as mlx-lm does")
    parser.add_argument("--humaneval", action="store_true", help="real prompts, which need a named model")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=40)
    args = parser.parse_args()
    for name, (target, tokenizer) in targets(args.model, args.dtype, args.bits).items():
        for spec in args.kv or ("raw", "affine@4g64", "e8v@4.25:fast"):
            most, usual, ties, partings = row(target, tokenizer, spec, args)
            print(
                f"{name}; {spec}: rounding {most:.1e} at most, {usual:.1e} as a rule; closer than that {ties:.2%}",
                flush=True,
            )
            for length in sorted({min(each, args.tokens) for each in LENGTHS}):
                kinds = [parting.kind for parting in partings if parting.position < length]
                print(
                    f"  of {args.prompts} prompts, {kinds.count('tie')} parted at a tie within {length} tokens, "
                    f"{kinds.count('fault')} by a fault",
                    flush=True,
                )


if __name__ == "__main__":
    main()
