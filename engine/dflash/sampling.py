"""Chooses tokens: greedily, or by sampling from the target's exact distribution, whatever was drafted.

The rule is speculative sampling (Leviathan et al. 2023, Chen et al. 2023). A draft d, drawn from q, is accepted
with probability min(1, p(d) / q(d)). At the first rejected draft, the token comes from the normalised residual
max(p - q, 0). A draft that was looked up and not drawn has q = 1 at itself.
"""

import secrets
from dataclasses import dataclass

from engine.errors import BadInput
from engine.mx import mx

COLDEST = 1e-30  # the least temperature by which float32 can divide


@dataclass(frozen=True)
class Sampling:
    """How logits become probabilities; the filters apply in this order."""

    temperature: float = 0.0  # 0 is greedy, and the rest is ignored
    top_k: int = 0  # only the k likeliest; 0 for all. Equals of the k-th stay too.
    top_p: float = 1.0  # only the likeliest that together reach this mass; 1 for all
    min_p: float = 0.0  # only those at least this fraction as likely as the likeliest; 0 for all

    def __post_init__(self) -> None:
        within = {
            "temperature": (0 <= self.temperature < float("inf"), "0 for greedy, or above"),
            "top_k": (self.top_k >= 0, "0 for all, or a count"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "min_p": (0 <= self.min_p <= 1, "0 to 1"),
        }
        for name, (right, fix) in within.items():
            if not right:
                raise BadInput(f"{name} is {getattr(self, name)}", fix)

    def probabilities(self, logits: mx.array) -> mx.array:
        """Return float32 probabilities ``[..., vocabulary]`` of logits."""
        scores = logits.astype(mx.float32)
        # Shift the logits to at most 0, so that a small temperature gives the likeliest token instead of
        # infinities.
        scores = (scores - scores.max(axis=-1, keepdims=True)) / max(self.temperature, COLDEST)
        if 0 < self.top_k < scores.shape[-1]:
            least = mx.topk(scores, self.top_k, axis=-1).min(axis=-1, keepdims=True)
            scores = mx.where(scores < least, -mx.inf, scores)
        probabilities = mx.softmax(scores, axis=-1)
        if self.top_p == 1 and self.min_p == 0:
            return probabilities
        most = probabilities.max(axis=-1, keepdims=True)
        least = self.min_p * most
        if self.top_p < 1:
            rising = mx.sort(probabilities, axis=-1)
            inside = mx.cumsum(rising, axis=-1) > 1 - self.top_p
            nucleus = mx.where(inside, rising, mx.inf).min(axis=-1, keepdims=True)
            least = mx.maximum(least, mx.minimum(nucleus, most))
        likely = mx.where(probabilities < least, 0, probabilities)
        return likely / likely.sum(axis=-1, keepdims=True)


class Sampler:
    """Draws with its own random key, independent of other generations and of global state.

    The same seed, logits and drafts give the same tokens; None draws a seed.
    """

    def __init__(self, sampling: Sampling, seed: int | None = None) -> None:
        self.sampling = sampling
        self._key = mx.random.key(secrets.randbits(63) if seed is None else seed)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.sampling.temperature == 0

    def draw(self, logits: mx.array) -> tuple[mx.array, mx.array | None]:
        """Return tokens ``[...]`` for logits ``[..., vocabulary]``, and the distributions that they were drawn from.

        The second is None if nothing was drawn (greedy). Pass it to ``accept`` unchanged.
        """
        if self.greedy:
            return mx.argmax(logits, axis=-1), None
        probabilities = self.sampling.probabilities(logits)
        return self._categorical(probabilities), probabilities

    def accept(
        self, logits: mx.array, drafts: mx.array, drawn_from: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the number of accepted drafts, and the token after them, both ``[batch]``, on the device.

        Row i of the target's logits, ``[batch, drafts + 1, vocabulary]``, is of the token after draft i - 1. Drafts,
        ``[batch, drafts]``, may be empty. ``drawn_from`` are the distributions that they were sampled from, ``[batch,
        drafts, vocabulary]``; None if they were not sampled.
        """
        if self.greedy:
            own = mx.argmax(logits, axis=-1)
            if not drafts.shape[1]:
                return mx.zeros((len(own),), mx.int32), own[:, -1]
            accepted = _leading(own[:, :-1] == drafts)
            return accepted, mx.take_along_axis(own, accepted[:, None], axis=1)[:, 0]
        target = self.sampling.probabilities(logits)
        chosen = drafts[..., None].astype(mx.int32)
        p = mx.take_along_axis(target[:, :-1], chosen, axis=-1)[..., 0]
        q = mx.ones_like(p)
        if drawn_from is not None:
            q = mx.take_along_axis(drawn_from, chosen, axis=-1)[..., 0]
        accepted = _leading(mx.random.uniform(shape=p.shape, key=self._next()) * q < p)
        remainder = _row(target, accepted)
        if drafts.shape[1]:
            # No draft was proposed at this position, so nothing is subtracted.
            if drawn_from is None:
                drawn_from = (mx.arange(target.shape[-1]) == chosen).astype(mx.float32)
            proposed = mx.pad(drawn_from, [(0, 0), (0, 1), (0, 0)])
            residual = mx.maximum(remainder - _row(proposed, accepted), 0)
            # If p and q are equal except for rounding, a draft is never rejected, but the row is computed
            # anyway.
            remainder = mx.where(residual.sum(axis=-1, keepdims=True) > 0, residual, remainder)
        return accepted, self._categorical(remainder)

    def _categorical(self, probabilities: mx.array) -> mx.array:
        return mx.random.categorical(mx.log(probabilities), key=self._next())

    def _next(self) -> mx.array:
        self._key, key = mx.random.split(self._key)
        return key


def _leading(right: mx.array) -> mx.array:
    """Return how many in a row are true from the start: ``[batch, n]`` to ``[batch]``."""
    return mx.cumprod(right.astype(mx.int32), axis=-1).sum(axis=-1)


def _row(x: mx.array, i: mx.array) -> mx.array:
    """Return row ``i[b]`` of ``x[b]``: ``[batch, rows, n]`` and ``[batch]`` to ``[batch, n]``."""
    return mx.take_along_axis(x, i[:, None, None], axis=1)[:, 0]
