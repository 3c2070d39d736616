"""The arm that computes every position again for each token, to compare the pace of needle answers with."""

from collections.abc import Iterator, Sequence

from bridge.reports.claims.recall import RECOMPUTE
from engine.cache import make_caches
from engine.cache.protocol import Cache
from engine.dflash.step import Step
from engine.measure.arm import Arm
from engine.measure.rows import CHUNK
from engine.mx import mx, nn, number

LOOP = "engine.bench.recompute"


def recompute(model: nn.Module, oracle: str) -> Arm[list[Cache]]:
    """Return the arm that reads the whole text again for each token, as a measure of what caching saves."""

    def decode(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        context = list(ids)
        for _ in range(most):
            caches[:] = make_caches(model, "raw")
            for at in range(0, len(context), CHUNK):
                logits = model(mx.array(context[at : at + CHUNK])[None], cache=caches)
                mx.eval(logits)
            context.append(int(number(mx.argmax(logits[0, -1]))))
            yield Step((context[-1],))

    return Arm(RECOMPUTE, "reference", LOOP, lambda _: make_caches(model, "raw"), decode, oracle=oracle)
