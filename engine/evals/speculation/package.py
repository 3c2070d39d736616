"""The ``dflash`` package as an arm, where it is installed.

It leaves hooks on the target that it is given, so it gets a model object of its own over the same arrays. It
takes no caches, and makes them through a name in its module; for the length of a run that name leads to a
function that notes what it makes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata, util
from typing import Any

from engine.dflash.step import Step
from engine.evals.speculation.arms import Arm
from engine.models import Pair
from engine.mx import mx

NAME = "dflash-package"
MAKER = "make_prompt_cache"


def package_arm(pair: Pair, block: int | None) -> Arm | None:
    """Return the arm; None where the package is not installed or the pair has no drafter.

    Args:
        pair: its drafter's folder is loaded anew, by the package, in the type of ours.
        block: see :func:`engine.evals.speculation.arms.speculative`.
    """
    # A block of one drafts nothing, which the package does not know.
    if pair.draft is None or block == 1 or util.find_spec("dflash") is None:
        return None
    from dflash import model_mlx as package

    with _replaced(package, "snapshot_download", lambda *_, **__: str(pair.parts["draft"].folder)):
        draft = package.load_draft(pair.parts["draft"].id)
    draft.set_dtype(pair.draft.fc.weight.dtype)
    target = pair.another_target()

    def start(ids: Sequence[int], most: int, caches: list[Any]) -> Iterator[Step]:
        def make(model: Any, *args: Any, **kwargs: Any) -> list[Any]:
            made = original(model, *args, **kwargs)
            if model is target:
                caches.extend(made)
            return made

        original = getattr(package, MAKER)
        with _replaced(package, MAKER, make):
            yield from _steps(
                package.stream_generate(
                    target, draft, pair.tokenizer, mx.array(ids), block_size=block, max_tokens=most
                ),
                block or int(draft.config.block_size),
                most,
            )

    return Arm(
        NAME,
        "reference",
        "dflash.model_mlx.stream_generate",
        list,
        start,
        patches=(f"dflash.model_mlx.{MAKER}",),
        options={"version": metadata.version("dflash"), "block_size": block},
    )


def _steps(found: Iterator[Any], block: int, most: int) -> Iterator[Step]:
    """Turn the package's responses into steps.

    The first token comes from the prompt. A round proposes a block less its first row, or what room there is;
    its ``accepted`` counts the target's own token.
    """
    count = 0
    for response in found:
        tokens = tuple(response.tokens)
        if count == 0:
            yield Step(tokens, text=response.text, drafter="prefill", finish_reason=response.finish_reason)
        else:
            proposed = min(block, most - count + 1) - 1 if tokens else 0
            yield Step(
                tokens,
                accepted=min(max(len(tokens) - 1, 0), proposed),
                text=response.text,
                drafter="dflash",
                proposed=proposed,
                finish_reason=response.finish_reason,
            )
        count += len(tokens)


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
