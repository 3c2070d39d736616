"""Saving caches to a file and loading them in another process, with everything checked that can be.

The file is mlx-lm's (safetensors), so its own ``load_prompt_cache`` reads it too once this package is
imported.
"""

from pathlib import Path
from typing import Any

from engine.cache import packed, roundtrip
from engine.cache.protocol import Cache
from engine.errors import BadInput, EngineError
from engine.lm import cache as lm_cache
from engine.mx import mx, tree

MARK = "kakeya-cache"
VERSION = "1"
CLASSES = (
    packed.LatticeKVCache,
    packed.LatticeRotatingKVCache,
    packed.BatchLatticeKVCache,
    packed.BatchLatticeRotatingKVCache,
    roundtrip.KakeyaLatticeMLXCache,
)

for _class in CLASSES:  # mlx-lm looks the class of a saved cache up in its own module
    setattr(lm_cache, _class.__name__, _class)


def save(path: Path, caches: list[Cache], spec: str, metadata: dict[str, str] | None = None) -> None:
    """Write caches to a ``.safetensors`` file.

    Args:
        path: the file.
        caches: one a layer; none of them empty.
        spec: how they were made, checked on loading.
        metadata: text to keep along, such as the model's name.
    """
    if any(cache.empty() for cache in caches):
        raise BadInput("an empty cache cannot be saved", "run a prompt through it first")
    lm_cache.save_prompt_cache(str(path), caches, {**(metadata or {}), MARK: VERSION, "spec": spec})


def load(path: Path, spec: str | None = None, *, like: list[Any] | None = None) -> list[Any]:
    """Read caches from a file.

    Args:
        path: the file.
        spec: what they have to have been made with; None takes any.
        like: fresh caches of the model they are for (:func:``engine.cache.make_caches``): number, kinds and
            head sizes have to fit, and packed ones hand out views where those do.

    Raises:
        BadInput: no file, not such a file, cut short, another codec, or not for this model.
    """
    if not Path(path).is_file():
        raise BadInput(f"there is no file {path}")
    try:
        caches, metadata = lm_cache.load_prompt_cache(str(path), return_metadata=True)
        mx.eval(
            [leaf for _, leaf in tree.tree_flatten([c.state for c in caches]) if isinstance(leaf, mx.array)]
        )
    except EngineError:
        raise
    except Exception as error:
        raise BadInput(f"{path} is not a saved cache, or is damaged: {error}") from error
    if metadata.get(MARK) != VERSION:
        raise BadInput(f"{path} was not saved by this program (version {VERSION})")
    if spec is not None and metadata.get("spec") != spec:
        raise BadInput(f"{path} was saved with {metadata.get('spec')!r}, not {spec!r}", "make it anew")
    return caches if like is None else _fitted(caches, like, path)


def _fitted(caches: list[Cache], like: list[Any], path: Path) -> list[Any]:
    if [type(cache) for cache in caches] != [type(cache) for cache in like]:
        raise BadInput(f"{path} was saved for another model: its layers have other caches")
    for cache, fresh in zip(caches, like, strict=True):
        if isinstance(cache, packed.PackedMixin):
            cache.views = fresh.views
    return caches
