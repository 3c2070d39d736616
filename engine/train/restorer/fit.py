"""Fits a restorer that reads the drafter: ridge regression, then the best map of lower rank, in closed form."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.dflash.drafter.model import BoundDFlash
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.taps import Tapped
from engine.mx import mx, nn
from engine.restore.drafted import DraftedConfig, DraftedRestorer, features
from engine.restore.learned import blocks, project

RIDGE = 1e-4  # relative to the mean energy of an input


def fit(
    target: nn.Module,
    drafter: BoundDFlash,
    layers: Sequence[int],
    rows: Sequence[Sequence[int]],
    *,
    rank: int,
    digests: tuple[str, str],
    on_row: Callable[[], None] = lambda: None,
) -> DraftedRestorer:
    """Return a restorer of a target's layers with the least squared error of raw keys and values.

    The best map of a given rank is the ridge regression, projected to the principal directions of its results.

    ``rank`` is the size of a position's state, at most that of the drafter's keys and values; ``digests`` are those of
    both models' weights. The rows are token ids of texts; ``on_row`` is called after each.
    """
    wanted = Wanted(target, layers)
    gram: np.ndarray = np.zeros(())
    products: np.ndarray = np.zeros(())
    for row in rows:
        ids = mx.array(list(row), mx.int32)
        x = features(drafter, ids).astype(mx.float32)
        x = mx.concatenate([x, mx.ones((x.shape[0], 1))], axis=-1)
        y = mx.concatenate(wanted(ids), axis=-1)
        gram = gram + np.array(x.T @ x, np.float64)
        products = products + np.array(x.T @ y, np.float64)
        on_row()
    ridge = RIDGE * np.trace(gram) / len(gram)
    whole = np.linalg.solve(gram + ridge * np.eye(len(gram)), products)
    _, directions = np.linalg.eigh(whole.T @ gram @ whole)
    largest = directions[:, ::-1][:, :rank]
    reduce = (whole @ largest).astype(np.float32)

    sizes = wanted.sizes
    config = DraftedConfig(
        layers=tuple(layers), inputs=len(gram) - 1, rank=largest.shape[1], sizes=tuple(sizes[::2]),
        target=digests[0], draft=digests[1],
    )  # fmt: skip
    restorer = DraftedRestorer(config, drafter)
    restorer.reduce.weight, restorer.reduce.bias = mx.array(reduce[:-1].T), mx.array(reduce[-1])
    ends = np.cumsum(config.sizes) * 2
    for layer, part in zip(restorer.expand, np.split(largest, ends[:-1]), strict=True):
        layer.weight = mx.array(part.astype(np.float32))
    mx.eval(restorer.parameters())
    return restorer


class Wanted:
    """The raw keys and values of a target's layers for a text."""

    def __init__(self, target: nn.Module, layers: Sequence[int]) -> None:
        self._layers, self._blocks = layers, blocks(target, layers)
        self._before = sorted({i - 1 for i in layers if i > 0})
        self._tapped = Tapped(target, self._before or [0])
        self._embeddings = TargetEmbeddings.of(target)
        self.sizes: list[int] = []

    def __call__(self, ids: mx.array) -> list[mx.array]:
        """Return keys and values of layer after layer, ``[length, size]`` each."""
        _, taps = self._tapped.forward(ids[None])
        outputs = dict(zip(self._before, mx.split(taps, max(1, len(self._before)), axis=-1), strict=False))
        first = self._embeddings.embed(ids)[None] * self._embeddings.embed_scale
        projected = []
        for i, block in zip(self._layers, self._blocks, strict=True):
            projected += [x[0].astype(mx.float32) for x in project(block, outputs[i - 1] if i else first)]
        self.sizes = [x.shape[-1] for x in projected]
        return projected


def relative_errors(restorer: DraftedRestorer, target: nn.Module, row: Sequence[int]) -> list[float]:
    """Return sum(error^2) / sum(x^2) of each layer's raw keys, then of its values, on a text."""
    states = restorer.states(row)
    restored = [x[0] for i in range(len(restorer.config.layers)) for x in restorer.pair(i, states)]
    wanted = Wanted(target, restorer.config.layers)(mx.array(list(row), mx.int32))
    errors = [mx.square(a - b).sum() / mx.square(b).sum() for a, b in zip(restored, wanted, strict=True)]
    return [float(np.array(error)) for error in errors]
