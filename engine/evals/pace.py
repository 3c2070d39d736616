"""How fast answers to needle prompts are decoded, and how fast with every position computed again for each token."""

from collections.abc import Iterator, Sequence
from typing import Any

from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.dflash.step import Step
from engine.evals.speculation.claims import Row, Table, decode_rate, enough, middle
from engine.evals.speculation.repeating import repeating
from engine.measure.arm import Arm
from engine.measure.rows import CHUNK
from engine.mx import mx, nn, number

RECOMPUTE, LOOP = "recompute", "engine.bench.recompute"


def recompute(model: nn.Module, oracle: str) -> Arm[list[Cache]]:
    """Return the arm that reads the whole text again for each token: what keeping a cache saves."""

    def decode(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        held = list(ids)
        for _ in range(most):
            caches[:] = make_caches(model, "raw")
            for at in range(0, len(held), CHUNK):
                logits = model(mx.array(held[at : at + CHUNK])[None], cache=caches)
                mx.eval(logits)
            held.append(int(number(mx.argmax(logits[0, -1]))))
            yield Step((held[-1],))

    return Arm(RECOMPUTE, "reference", LOOP, lambda _: make_caches(model, "raw"), decode, oracle=oracle)


def pace_claims(rows: Sequence[Row], arms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tokens a second of each arm, and how many times the recomputation's each candidate's are.

    There are none without a warm-up and enough repeats, prompts and tokens, or of answers that repeat themselves. No
    speed-up over mlx-lm is claimed: what a restored cache answers need not be what the whole one answers.

    Args:
        rows: all of them.
        arms: the report's section.
    """
    if not any(row.get("warmup") for row in rows) or repeating(rows):
        return []
    table = Table.of(rows)
    prompts = sorted({row["prompt"] for row in rows})
    where = {"where": {"prompt": prompts[0]} if len(prompts) == 1 else {}}
    timed = [arm for arm in arms if enough(table, arm["name"])]
    made = [
        middle("decode_tok_s", list(table.per_prompt(arm["name"], decode_rate).values()), arm=arm["name"])
        | where
        for arm in timed
    ]
    if RECOMPUTE not in {arm["name"] for arm in timed}:
        return made
    for arm in timed:
        if arm["role"] == "candidate":
            quotients = table.quotients(arm["name"], RECOMPUTE, decode_rate)
            made.append(middle("decode_ratio", quotients, arm=arm["name"], against=RECOMPUTE) | where)
    return made
