"""The vectors on which codecs are compared: seeded data, or keys and values from a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import BadInput

if TYPE_CHECKING:
    from engine.mx import mx

OUTLIER_CHANNELS = 2
OUTLIER_FACTOR = 20.0
DISTRIBUTIONS = ("gaussian", "t4", "outliers")
CHUNK = 512  # tokens of a text to run at a time
TOKENS = 4096  # tokens of a text; each gives a vector for every key-value head and layer


def draw(distribution: str, n_vectors: int, dim: int, seed: int) -> np.ndarray:
    """Return float32 ``[n_vectors, dim]`` with values that half precision can represent.

    Half precision is what an uncompressed cache holds, so it is where a codec's error is counted from. Distributions
    are ``gaussian`` (unit variance); ``t4`` (Student's t with 4 degrees of freedom, heavy tails); ``outliers``
    (Gaussian with two channels times 20, as keys often look). The same seed gives the same array on every machine.
    """
    rng = np.random.default_rng([seed, DISTRIBUTIONS.index(distribution)])
    shape = (n_vectors, dim)
    data = rng.standard_t(4, shape) if distribution == "t4" else rng.standard_normal(shape)
    if distribution == "outliers":
        channels = rng.choice(dim, OUTLIER_CHANNELS, replace=False)
        data[:, channels] *= OUTLIER_FACTOR
    return data.astype(np.float16).astype(np.float32)


def capture(model: Any, tokens: "mx.array", most: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Run tokens, int ``[1, n]``, through a model and return the contents of its caches.

    Returns:
        Float32 ``[vectors, dim]`` for each head size, all layers together, as ``keys 128`` and ``values
        128``; ``most`` of each, drawn with ``seed``, where there are more.
    """
    from engine.lm import cache as lm_cache
    from engine.mx import mx

    caches = lm_cache.make_prompt_cache(model)
    for start in range(0, tokens.shape[1], CHUNK):
        mx.eval(model(tokens[:, start : start + CHUNK], cache=caches))
    captured: dict[str, list[np.ndarray]] = {}
    for cache in caches:
        if isinstance(cache, lm_cache.KVCache | lm_cache.RotatingKVCache):
            for name, x in zip(("keys", "values"), cache.keys_and_values(), strict=True):
                vectors = np.array(x.astype(mx.float32)).reshape(-1, x.shape[-1])
                captured.setdefault(f"{name} {x.shape[-1]}", []).append(vectors)
    if not captured:
        raise BadInput("this model keeps no keys and values")
    rng = np.random.default_rng(seed)
    together = {name: np.concatenate(parts) for name, parts in captured.items()}
    return {name: x[np.sort(rng.permutation(len(x))[:most])] for name, x in together.items()}


def capture_from(name: str, text: Path, most: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Load a model by any name that ``engine.models.load`` takes, and ``capture`` from the start of a text.

    Raises:
        BadInput: there is no such model, or the text is empty or cannot be read.
    """
    from engine.models import load
    from engine.mx import mx

    try:
        words = text.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {text}: {error}") from error
    pair = load(name, False, dtype="stored")
    ids = list(pair.tokenizer.encode(words))[:TOKENS]
    if not ids:
        raise BadInput(f"{text} is empty")
    return capture(pair.target, mx.array(ids)[None], most, seed)
