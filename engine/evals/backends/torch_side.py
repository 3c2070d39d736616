"""What the backend over torch measures, in a process that never imports MLX.

``engine.evals.backends.companion`` starts it and sends a JSON object a line: the name of a method of ``TorchSide``
and its arguments. Each answer is a line too.
"""

import json
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import transformers

from bridge.common.errors import KakeyaError
from engine.evals.backends import timed
from engine.live_bytes import arrays_in, layer_of, live_bytes, memory_of
from engine.serve.torch.device import blas_name, device_of, dtype_of, name_of
from engine.serve.torch.model import load_model
from engine.torch import kakeya_cache, packed_layers
from engine.torch.codecs import Coder, rows_of, sides_of


class TorchSide:
    """A loaded model."""

    def __init__(
        self, model: str, device: str | None, dtype: str | None, threads: int | None, caches: Sequence[str]
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        where = device_of(device)
        self._model = load_model(model, where, dtype_of(dtype, where))
        self._raw = lru_cache(maxsize=1)(lambda ids, follow: self._forced("raw", ids, follow))
        left_out = {}
        for spec in caches:
            try:
                if not packed_layers(kakeya_cache(self._model.net, spec)):
                    left_out[spec] = "torch would leave every layer of this model raw"
            except KakeyaError as error:
                left_out[spec] = error.message
        self.facts = {
            "left_out": left_out,
            "about": {
                "device": where.type,
                "dtype": name_of(self._model.dtype),
                "blas": blas_name(),
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
                "threads": torch.get_num_threads(),
            },
        }

    def decode(self, spec: str, ids: Sequence[int], count: int) -> dict[str, Any]:
        """Return the row of an answer."""
        cache = kakeya_cache(self._model.net, spec)
        row = timed.decode(lambda tokens: int(self._model.forward([*tokens], cache)[-1].argmax()), ids, count)
        layers = (layer_of(type(layer).__name__, arrays_in(vars(layer))) for layer in cache.layers)
        counters = {"packed_layers": packed_layers(cache), "live_bytes": live_bytes(cache.layers)}
        return {**row, "memory": memory_of(layers), "counters": counters}

    def predict(
        self, spec: str, ids: Sequence[int], follow: Sequence[int], out: str | None
    ) -> dict[str, Any]:
        """Return how far predictions move from those with the raw cache, whose own go into the file ``out``."""
        raw = self._raw(tuple(ids), tuple(follow))
        if out is not None:
            np.save(out, raw.numpy())
            return {}
        other = self._forced(spec, ids, follow)
        kl = (raw.exp() * (raw - other)).sum(-1).clamp(min=0)
        same = raw.argmax(-1) == other.argmax(-1)
        return {"n_positions": len(raw), "sum_kl": float(kl.double().sum()), "same_top": int(same.sum())}

    def encode(self, spec: str, path: str) -> dict[str, Any]:
        """Return the digests of the rows of codes of the keys and values in a file."""
        codes: list[str] = []
        with np.load(path) as vectors:
            for side, name in zip(sides_of(spec), ("keys", "values"), strict=True):
                x = torch.from_numpy(vectors[name])
                codes += timed.digests_of(Coder(rows_of(side, x.shape[-1]), x.dtype).encode(x).numpy())
        return {"codes": codes}

    def _forced(self, spec: str, ids: Sequence[int], follow: Sequence[int]) -> torch.Tensor:
        """Return the log-probabilities of each next token, float32 ``[follow, vocabulary]``, token by token."""
        cache = kakeya_cache(self._model.net, spec)
        parts = (*timed.parts_of(ids), *([token] for token in follow[:-1]))
        rows = [self._model.forward([*part], cache)[-1].cpu() for part in parts]
        return torch.stack(rows[-len(follow) :]).log_softmax(-1)


def main() -> None:
    """Answer the lines of standard input until it ends."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    transformers.utils.logging.disable_progress_bar()
    side: TorchSide | None = None
    for line in sys.stdin:
        name, arguments = json.loads(line)
        result: dict[str, Any]
        try:
            if side is None:
                side = TorchSide(**arguments)
                result = side.facts
            else:
                result = getattr(side, name)(**arguments)
        except KakeyaError as error:
            result = {"error": error.message, "fix": error.fix}
        print(json.dumps(result), file=sink, flush=True)
