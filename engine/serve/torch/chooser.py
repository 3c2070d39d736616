"""Chooses each token of an answer in torch: biases, penalties, grammars, sampling; and log-probabilities."""

import secrets

import torch

from engine.serve.backend import Options
from engine.serve.grammars.position import GrammarState

COLDEST = 1e-30  # the least temperature by which float32 can divide
Reported = tuple[int, float, list[tuple[int, float]]]


class Chooser:
    """The rules of one answer, for rows of ``vocabulary`` logits: those of the backend over MLX.

    The repetition penalty includes the prompt. ``stops`` are the tokens that end an answer.
    """

    def __init__(self, options: Options, prompt: list[int], vocabulary: int, stops: frozenset[int]) -> None:
        self.options, self._stops = options, stops
        self.grammar: GrammarState | None = options.grammar.start() if options.grammar else None
        self._bias = torch.zeros(vocabulary)
        for token, by in options.bias.items():
            self._bias[token] = by
        self._penal = bool(options.presence or options.frequency or options.repetition != 1)
        self._counts, self._present = torch.zeros(vocabulary), torch.zeros(vocabulary, dtype=torch.bool)
        if options.repetition != 1:
            self._present[prompt] = True
        self._random = torch.Generator().manual_seed(
            secrets.randbits(63) if options.seed is None else options.seed
        )

    @property
    def closed_early(self) -> bool:
        """Whether the token limit forced the answer to end."""
        return self.grammar is not None and self.grammar.forced_to_end

    @property
    def ended(self) -> bool:
        """Whether the grammar allows no further token."""
        return self.grammar is not None and self.grammar.ended

    def allowed(self, drafts: list[int]) -> int:
        """Return how many of the first drafts the grammar allows."""
        return self.grammar.accepted_length(drafts) if self.grammar is not None else len(drafts)

    def choose(self, logits: torch.Tensor, room: int) -> list[int]:
        """Return the next tokens, for logits ``[vocabulary]`` on the CPU. They leave room to close a grammar."""
        token = self._draw(self._shaped(logits))
        if self.grammar is None:
            return [token]
        written = [] if token in self._stops else [token]
        fitting = self.grammar.fit(written, room, min(self._stops, default=None))
        return [token] if fitting == written else fitting

    def commit(self, tokens: tuple[int, ...]) -> None:
        """Record the tokens that the answer took."""
        if self._penal:
            for token in tokens:
                self._counts[token] += 1
                self._present[token] = True
        if self.grammar is not None:
            self.grammar.commit([token for token in tokens if token not in self._stops])

    def report(self, logits: torch.Tensor, tokens: tuple[int, ...]) -> list[Reported] | None:
        """Return the log-probabilities of tokens and of the likeliest ones, from the unchanged logits."""
        if self.options.logprobs is None:
            return None
        normalized = logits.log_softmax(-1)
        values, ids = normalized.topk(min(self.options.logprobs, len(logits)))
        best = list(zip(ids.tolist(), values.tolist(), strict=True))
        return [(token, float(normalized[token]), best) for token in tokens]

    def _shaped(self, logits: torch.Tensor) -> torch.Tensor:
        options = self.options
        if options.repetition != 1:
            weaker = torch.where(logits > 0, logits / options.repetition, logits * options.repetition)
            logits = torch.where(self._present, weaker, logits)
        if self._penal:
            logits = logits - options.frequency * self._counts - options.presence * (self._counts > 0)
        if options.bias:
            logits = logits + self._bias
        if self.grammar is not None:
            logits = logits.masked_fill(~torch.from_numpy(self.grammar.masks([])[0]), -torch.inf)
        return logits

    def _draw(self, logits: torch.Tensor) -> int:
        if self.options.temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial(probabilities(logits, self.options), 1, generator=self._random))


def probabilities(logits: torch.Tensor, options: Options) -> torch.Tensor:
    """Return the probabilities from which a token is drawn; the filters are those of ``engine.dflash.sampling``."""
    scores = (logits - logits.max()) / max(options.temperature, COLDEST)
    if 0 < options.top_k < len(scores):
        scores = scores.masked_fill(scores < scores.topk(options.top_k).values[-1], -torch.inf)
    chances = scores.softmax(-1)
    least = options.min_p * chances.max()
    if options.top_p < 1:
        rising = chances.sort().values
        inside = rising.cumsum(-1) > 1 - options.top_p
        nucleus = rising[inside].min() if bool(inside.any()) else chances.max()
        least = torch.maximum(least, nucleus)
    likely = chances.masked_fill(chances < least, 0)
    return likely / likely.sum()
