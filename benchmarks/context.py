"""Time decoding after contexts of several lengths, over raw and packed caches, plain and with looked-up drafts.

    python benchmarks/context.py [--model NAME] [--contexts N,N] [--caches SPEC,SPEC] [--tokens N] [--repeats N]
    kakeya measure context-curve --presets benchmarks/presets -e CONTEXT_CURVE=$PWD/benchmarks/context.py \
      -e KAKEYA_MAC_VERIFIER_PATH=FOLDER --out docs/results    # a report, vouched for by its signed run

A context is source code of this package, then the same prompt. The longest is read once, with raw caches; the others
are its beginnings, and packed caches code its keys and values. Each figure is the least of the repeats: of the seconds
on the clock and, in brackets, of the processor's seconds over all threads, which say more on a busy machine. A token
and a round are in ms. ``gain`` is plain over drafted time, ``over raw`` this cache's plain time over the raw one's. The
last column is the bytes of the caches as a share of bfloat16's. With ``--out``, a report holds each repeat's times, and
the figures that ``presets/context-curve.yaml`` declares: medians of the repeats.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import print_machine

from bridge.reports import digests
from engine import cache, models
from engine.dflash.generation import Run
from engine.dflash.loop import rounds
from engine.dflash.propose.adaptive import Adaptive, Fixed
from engine.dflash.propose.lookup import BLOCK, Lookup
from engine.dflash.rollback import rollback_for
from engine.dflash.sampling import Sampler, Sampling
from engine.dflash.stops import Stops
from engine.harness import prompt_sets, provenance
from engine.mx import mx

CHUNK = 512
BFLOAT16_BYTES = 2
COLUMNS = (
    "context", "cache", "plain, a token", "drafted, a token", "drafted, a round", "tokens a round", "gain",
    "over raw", "bytes",
)  # fmt: skip
# By cache and context: each repeat's figures, by name.
Curves = dict[str, dict[str, dict[str, list[float]]]]
SOURCE = Path(__file__).parents[1] / "engine"


@dataclass(frozen=True)
class Decoded:
    """One answer and what it took."""

    tokens: int
    rounds: int
    seconds: float
    processor_s: float

    @property
    def ms(self) -> float:
        """Milliseconds for a token."""
        return 1000 * self.seconds / self.tokens


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--contexts", default="512,2048,4096,8000")
    parser.add_argument(
        "--caches", default="raw,e8v@4.25", help="the first is what the others are compared with"
    )
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write a report")
    options = parser.parse_args()
    contexts = sorted(int(n) for n in options.contexts.split(","))
    print_machine()
    pair = models.load(options.model, draft=False)
    prompt = list(prompt_sets.encode(prompt_sets.read(most=1), pair.tokenizer, chat=False)[0].ids)
    filler = source_tokens(pair.tokenizer, contexts[-1] - len(prompt))
    whole = read(pair.target, filler)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    curves: Curves = {}
    for context in contexts:
        ids = filler[: context - len(prompt)] + prompt
        base: Decoded | None = None
        for spec in options.caches.split(","):
            caches = copied(pair.target, whole, spec, context - len(prompt))
            repeats = compare(pair.target, caches, ids, options.tokens, options.repeats)
            curves.setdefault(spec, {})[str(context)] = curve_point(*repeats)
            plain, drafted = map(least, repeats)
            base = base or plain
            cells = (
                context,
                spec,
                per(plain, plain.tokens),
                per(drafted, drafted.tokens),
                per(drafted, drafted.rounds),
                f"{drafted.tokens / drafted.rounds:.2f}",
                ratio(plain, drafted),
                ratio(plain, base),
                f"{share_of_bfloat16(caches, whole):.1%}",
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if options.out:
        about = {"model": Path(pair.name).name, "tokens": options.tokens, "identity": provenance.identity()}
        write(options.out, {"kind": "context-curve", **about, "curves": curves, "figures": figures(curves)})


def curve_point(plain: Sequence[Decoded], drafted: Sequence[Decoded]) -> dict[str, list[float]]:
    """Return what a report holds of a cache at a context: each repeat's figures."""
    return {
        "plain_ms": [run.ms for run in plain],
        "drafted_ms": [run.ms for run in drafted],
        "tokens_a_round": [run.tokens / run.rounds for run in drafted],
    }


def figures(curves: Curves) -> dict[str, float]:
    """Return the figures that a report claims; the first cache is what the others are compared with."""
    plain = {
        (spec, context): statistics.median(point["plain_ms"])
        for spec, curve in curves.items()
        for context, point in curve.items()
    }
    base = next(iter(curves))
    found: dict[str, float] = {}
    for (spec, context), ms in plain.items():
        found[f"{spec} {context} plain_ms"] = ms
        found[f"{spec} {context} gain"] = ms / statistics.median(curves[spec][context]["drafted_ms"])
        if spec != base:
            found[f"{spec} {context} over_{base}"] = ms / plain[base, context]
    return found


def write(path: Path, report: dict[str, Any]) -> None:
    """Write a report, and print the line by which a run's log vouches for it."""
    data = json.dumps(report, indent=1).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(digests.FILE, os.environ.get(digests.VARIABLE, "-"), hashlib.sha256(data).hexdigest(), flush=True)


def share_of_bfloat16(caches: Sequence[Any], raw: Sequence[Any]) -> float:
    """Return the bytes of caches as a share of what as many keys and values would take in bfloat16."""
    tokens = caches[0].keys.shape[2]
    values = sum(x.shape[1] * x.shape[3] * tokens for each in raw for x in (each.keys, each.values))
    return sum(each.nbytes for each in caches) / (BFLOAT16_BYTES * values)


def source_tokens(tokenizer: Any, count: int) -> list[int]:
    """Return tokens of this package's source code."""
    tokens: list[int] = []
    for path in sorted(SOURCE.rglob("*.py")):
        if len(tokens) >= count:
            break
        tokens += tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False)
    return tokens[:count]


def read(target: Any, ids: Sequence[int]) -> list[Any]:
    """Return raw caches that hold the tokens."""
    caches: list[Any] = cache.make_caches(target, "raw")
    for start in range(0, len(ids), CHUNK):
        target(mx.array(list(ids[start : start + CHUNK]))[None], cache=caches)
        mx.eval([each.state for each in caches])
    return caches


def copied(target: Any, whole: Sequence[Any], spec: str, count: int) -> list[Any]:
    """Return caches of another kind that hold the first tokens of raw ones."""
    caches: list[Any] = cache.make_caches(target, spec)
    for source, copy in zip(whole, caches, strict=True):
        copy.update_and_fetch(source.keys[..., :count, :], source.values[..., :count, :])
        mx.eval(copy.state)
    return caches


def compare(
    target: Any, caches: list[Any], ids: Sequence[int], tokens: int, repeats: int
) -> tuple[list[Decoded], list[Decoded]]:
    """Return the repeats of plain and drafted decoding, in turns, after a first one that is not counted."""
    policy = Adaptive()  # kept, as a server keeps it
    plain, drafted = [], []
    for _ in range(repeats + 1):
        plain.append(decode(target, caches, ids, tokens, None))
        drafted.append(decode(target, caches, ids, tokens, policy))
    return plain[1:], drafted[1:]


def decode(
    target: Any, caches: list[Any], ids: Sequence[int], tokens: int, policy: Adaptive | None
) -> Decoded:
    """Decode greedily after ``ids``, of which the caches may hold some; they keep all but the last."""
    lookup = Lookup() if policy else None
    run = Run(
        target, caches, rollback=rollback_for(caches, model=target), proposer=None, lookup=lookup,
        sampler=Sampler(Sampling(0.0), None), stops=Stops(None, (), ()), policy=policy or Fixed(),
        room=tokens, blocks=(BLOCK if policy else 1, 0),
    )  # fmt: skip
    with run.closing():
        for _ in run.reading(ids, CHUNK, caches[0].offset):
            pass
        started, used = time.perf_counter(), time.process_time()
        steps = [step for step in rounds(run) if step.tokens]
        seconds, processor_s = time.perf_counter() - started, time.process_time() - used
    for each in caches:
        each.trim(each.offset - (len(ids) - 1))
    return Decoded(sum(len(step.tokens) for step in steps), len(steps), seconds, processor_s)


def least(runs: Sequence[Decoded]) -> Decoded:
    return Decoded(
        runs[0].tokens, runs[0].rounds, min(run.seconds for run in runs), min(run.processor_s for run in runs)
    )


def per(run: Decoded, count: int) -> str:
    return f"{1000 * run.seconds / count:.1f} ({1000 * run.processor_s / count:.1f})"


def ratio(first: Decoded, second: Decoded) -> str:
    """Return the quotient of two times for a token."""
    share = second.tokens / first.tokens
    return (
        f"{first.seconds / second.seconds * share:.2f} ({first.processor_s / second.processor_s * share:.2f})"
    )


if __name__ == "__main__":
    main()
