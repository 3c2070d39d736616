"""What the backend over MLX measures, in this process."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bridge.common import host
from engine import blas
from engine.cache import make_caches
from engine.cache.spec import parse
from engine.codec.classic import ClassicCodec
from engine.codec.classic_store import pack
from engine.codec.kinds import make_codec
from engine.errors import BadInput
from engine.evals.backends import timed
from engine.evals.liveness import counters
from engine.evals.predictions import distance
from engine.harness import cache_bytes
from engine.live_bytes import live_bytes
from engine.models import Pair
from engine.mx import dtype_name, mx, number

VECTORS = 64  # keys, and as many values, of a prompt that both backends encode


class MlxSide:
    """A loaded model."""

    def __init__(self, pair: Pair) -> None:
        self._target = pair.target
        self.raw = lru_cache(maxsize=1)(lambda ids, follow: self._forced("raw", ids, follow))

    def about(self) -> dict[str, Any]:
        """Return where and how MLX computes."""
        caches = make_caches(self._target, "raw")
        logits = self._target(mx.zeros((1, 1), dtype=mx.int32), cache=caches)
        threads = {"threads": count} if (count := blas.threads()) else {}
        return {
            "device": host.device_name(mx.default_device()),
            "dtype": dtype_name(logits.dtype),
            "blas": blas.in_use().name,
            "versions": {name: host.version(name) for name in ("mlx", "mlx-lm")},
            **threads,
        }

    def decode(self, spec: str, ids: Sequence[int], count: int) -> dict[str, Any]:
        """Return the row of an answer."""
        caches = make_caches(self._target, spec)

        def step(tokens: Sequence[int]) -> int:
            return int(number(mx.argmax(self._target(mx.array([[*tokens]]), cache=caches)[0, -1])))

        row = timed.decode(step, ids, count)
        mx.eval([array for cache in caches for array in cache_bytes.arrays(cache)])
        packed = sum(counters([cache])["injected_positions"] > 0 for cache in caches)
        counted = {"packed_layers": packed, "live_bytes": live_bytes(caches)}
        return {**row, "memory": cache_bytes.live(caches), "counters": counted}

    def predict(self, spec: str, ids: Sequence[int], follow: Sequence[int]) -> dict[str, Any]:
        """Return how far predictions move from those with the raw cache."""
        return distance(self.raw(tuple(ids), tuple(follow)), self._forced(spec, ids, follow))

    def distance_of(self, path: Path, ids: Sequence[int], follow: Sequence[int]) -> dict[str, Any]:
        """Return how far the log-probabilities in a file are from those with the raw cache."""
        other = mx.array(np.load(path))
        # Normalize as the raw cache's were: sums over a vocabulary round differently in torch.
        other -= mx.logsumexp(other, axis=-1, keepdims=True)
        return distance(self.raw(tuple(ids), tuple(follow)), other)

    def save_vectors(self, path: Path, ids: Sequence[int]) -> None:
        """Write some keys and values of all layers, float32, to a file.

        Raises:
            BadInput: the model keeps no keys and values.
        """
        caches = make_caches(self._target, "raw")
        for part in timed.parts_of(ids):
            mx.eval(self._target(mx.array([[*part]]), cache=caches))
        states = [cache.state for cache in caches if getattr(cache, "keys", None) is not None]
        if not states:
            raise BadInput("this model keeps no keys and values", "take a model with attention")
        np.savez(path, keys=_some([state[0] for state in states]), values=_some([s[1] for s in states]))

    def encode(self, spec: str, path: Path) -> list[str]:
        """Return the digests of the rows of codes of the keys and values in a file."""
        codes: list[str] = []
        with np.load(path) as vectors:
            for side, name in zip(parse(spec).sides, ("keys", "values"), strict=True):
                x = mx.array(vectors[name])
                codec = make_codec(side, x.shape[-1], "float32")
                rows = pack(codec, x) if isinstance(codec, ClassicCodec) else codec.encode(x)
                codes += timed.digests_of(np.array(rows))
        return codes

    def _forced(self, spec: str, ids: Sequence[int], follow: Sequence[int]) -> mx.array:
        """Return the log-probabilities of each next token, float32 ``[follow, vocabulary]``, token by token."""
        caches = make_caches(self._target, spec)
        rows = []
        for part in (*timed.parts_of(ids), *([token] for token in follow[:-1])):
            logits = self._target(mx.array([[*part]]), cache=caches)[0, -1].astype(mx.float32)
            mx.eval(logits)
            rows.append(logits)
        logits = mx.stack(rows[-len(follow) :])
        return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def _some(sides: Sequence[mx.array]) -> np.ndarray:
    """Return ``VECTORS`` vectors, float32 ``[n, dim]``, from all layers whose head size is that of the first."""
    dim = sides[0].shape[-1]
    flat = [x.reshape(-1, dim) for x in sides if x.shape[-1] == dim]
    vectors = np.array(mx.concatenate(flat).astype(mx.float32))
    chosen: np.ndarray = vectors[np.linspace(0, len(vectors) - 1, min(VECTORS, len(vectors))).astype(int)]
    return chosen
