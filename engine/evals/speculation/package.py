"""The ``dflash`` package as an arm, if it is installed.

It leaves hooks on the target that it is given, so it gets a model object of its own over the same arrays. It
takes no caches, and makes them through a name in its module; for the length of a run that name leads to a
function that notes what it makes.
"""

from collections.abc import Iterator, Sequence
from importlib import metadata, util
from typing import Any

from engine.cache.protocol import Cache
from engine.dflash.step import Step
from engine.evals.speculation.arms import NATIVE
from engine.inject import NAME
from engine.inject.package import steps
from engine.inject.strategy import MAKER, replaced
from engine.measure.arm import Arm
from engine.models import Pair
from engine.mx import mx


def package_arm(pair: Pair, block: int | None) -> Arm[list[Cache]] | None:
    """Return the arm; None if the package is not installed or the pair has no drafter.

    Args:
        pair: its drafter's folder is loaded anew, by the package, in the type of ours.
        block: see :func:``engine.evals.speculation.arms.speculative``.
    """
    # A block of one token drafts nothing, which the package does not support.
    if pair.draft is None or block == 1 or util.find_spec("dflash") is None:
        return None
    from dflash import model_mlx as package

    with replaced(package, "snapshot_download", lambda *_, **__: str(pair.parts["draft"].folder)):
        draft = package.load_draft(pair.parts["draft"].id)
    draft.set_dtype(pair.draft.fc.weight.dtype)
    target = pair.another_target()

    def start(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        def make(model: Any, *args: Any, **kwargs: Any) -> list[Any]:
            built: list[Cache] = original(model, *args, **kwargs)
            if model is target:
                caches.extend(built)
            return built

        original = getattr(package, MAKER)
        with replaced(package, MAKER, make):
            yield from steps(
                package.stream_generate(
                    target, draft, pair.tokenizer, mx.array(list(ids)), block_size=block, max_tokens=most
                ),
                block or int(draft.config.block_size),
                most,
            )

    return Arm(
        NAME,
        "reference",
        "dflash.model_mlx.stream_generate",
        lambda _: [],  # the package makes its own
        start,
        oracle=NATIVE,
        patches=(f"dflash.model_mlx.{MAKER}",),
        options={"version": metadata.version("dflash"), "block_size": block},
    )
