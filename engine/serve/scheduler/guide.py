"""Changes the target's logits before a token is chosen: biases, penalties, grammars; and log-probabilities.

All rows of a round are processed together. Row i follows the round's first i drafts, so its penalties count them and
its grammar has consumed them.
"""

from typing import cast

from engine.mx import mx
from engine.serve.backend import Options
from engine.serve.grammars.position import GrammarState

Alternatives = list[tuple[int, float]]


class Guide:
    """The rules of one answer, for rows of ``vocabulary`` logits.

    The repetition penalty includes the prompt. ``grammar`` is the answer's position in its grammar, if it has one, and
    ``stops`` are the tokens that end an answer.
    """

    def __init__(
        self,
        options: Options,
        prompt: list[int],
        vocabulary: int,
        grammar: GrammarState | None,
        stops: frozenset[int],
    ) -> None:
        self.options, self.grammar, self.stops = options, grammar, stops
        self._vocabulary = vocabulary
        self._bias = None
        if options.bias:
            at, by = (mx.array(list(x)) for x in (options.bias.keys(), options.bias.values()))
            self._bias = mx.zeros((vocabulary,)).at[at].add(by.astype(mx.float32))
        self._penal = bool(options.presence or options.frequency or options.repetition != 1)
        self._counts = mx.zeros((vocabulary,))
        self._seen = mx.zeros((vocabulary,))
        if options.repetition != 1:
            self._seen = self._seen.at[mx.array(prompt)].add(1.0)

    @property
    def ended(self) -> bool:
        """Whether the grammar allows no further token."""
        return self.grammar is not None and self.grammar.ended

    @property
    def forced_to_end(self) -> bool:
        """Whether the token limit forced the answer to end."""
        return self.grammar is not None and self.grammar.forced_to_end

    def cut(self, drafts: list[int]) -> int:
        """Return how many of the first drafts the grammar allows."""
        return self.grammar.accepted_length(drafts) if self.grammar else len(drafts)

    def until_end(self, tokens: list[int], room: int) -> list[int]:
        """Return the chosen tokens up to the end of the grammar, of which ``room`` may be committed.

        A token that would leave too little room to complete the answer is replaced by one that closes it.
        """
        if self.grammar is None:
            return tokens
        inside = tokens[: self.grammar.length(tokens)]
        written = [token for token in inside if token not in self.stops]
        fitting = self.grammar.fit(written, room, min(self.stops, default=None))
        return inside if fitting == written else fitting

    def shape(self, logits: mx.array, drafts: list[int]) -> mx.array:
        """Return the changed logits, ``[1, drafts + 1, vocabulary]``, from which tokens are chosen.

        The drafts are those that ``cut`` left.
        """
        shaped = logits.astype(mx.float32)
        if self._penal:
            shaped = self._penalized(shaped, drafts)
        if self._bias is not None:
            shaped = shaped + self._bias
        if self.grammar is not None:
            allowed = mx.array(self.grammar.masks(drafts))
            shaped = mx.where(allowed[None], shaped, -mx.inf)
        return shaped

    def commit(self, tokens: tuple[int, ...]) -> None:
        """Record the tokens that the round committed."""
        if self._penal:
            at = mx.array(tokens)
            self._counts = self._counts.at[at].add(1.0)
            self._seen = self._seen.at[at].add(1.0)
        if self.grammar is not None:
            self.grammar.commit([token for token in tokens if token not in self.stops])

    def report(
        self, logits: mx.array, tokens: tuple[int, ...]
    ) -> list[tuple[int, float, Alternatives]] | None:
        """Return the log-probabilities of tokens and of their likeliest alternatives, from the unchanged logits."""
        if self.options.logprobs is None:
            return None
        rows = logits[0, : len(tokens)].astype(mx.float32)
        normalized = rows - mx.logsumexp(rows, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(normalized, mx.array(tokens)[:, None], axis=-1)[:, 0]
        top = self.options.logprobs
        best: list[Alternatives] = [[] for _ in tokens]
        if top:
            at = mx.argsort(-normalized, axis=-1)[:, :top]
            values = mx.take_along_axis(normalized, at, axis=-1)
            ids, logprobs = cast("list[list[int]]", at.tolist()), cast("list[list[float]]", values.tolist())
            best = [list(zip(*row, strict=True)) for row in zip(ids, logprobs, strict=True)]
        return list(zip(tokens, cast("list[float]", chosen.tolist()), best, strict=True))

    def _penalized(self, logits: mx.array, drafts: list[int]) -> mx.array:
        met = mx.zeros((1, self._vocabulary))
        if drafts:
            ones = (mx.arange(self._vocabulary) == mx.array(drafts)[:, None]).astype(mx.float32)
            met = mx.concatenate([met, mx.cumsum(ones, axis=0)])
        counts, present = (self._counts + met)[None], (self._seen + met)[None]
        by = self.options.repetition
        if by != 1:
            logits = mx.where(present > 0, mx.where(logits > 0, logits / by, logits * by), logits)
        return logits - self.options.frequency * counts - self.options.presence * (counts > 0)
