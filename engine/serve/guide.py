"""What stands between the target's logits and the choice of a token: biases, penalties, grammars, reports.

A round's rows are looked at together. Row i follows the round's first i drafts, so its penalties count them and
its grammar has read them.
"""

from typing import TYPE_CHECKING, cast

from engine.mx import mx
from engine.serve.job import Options

if TYPE_CHECKING:
    from engine.serve.grammar import Walk

Alternatives = list[tuple[int, float]]


class Guide:
    """The rules of one answer.

    Args:
        options: of the answer.
        prompt: its prompt, which the repetition penalty counts.
        vocabulary: how many logits a row has.
        grammar: what the answer has to follow (:class:`engine.serve.grammar.Walk`), or None.
        stops: the tokens that end an answer.
    """

    def __init__(
        self,
        options: Options,
        prompt: list[int],
        vocabulary: int,
        grammar: "Walk | None",
        stops: frozenset[int],
    ) -> None:
        self.options, self.grammar, self.stops = options, grammar, stops
        self._vocabulary = vocabulary
        self._bias = None
        if options.bias:
            at, by = (mx.array(list(x)) for x in (options.bias.keys(), options.bias.values()))
            self._bias = mx.zeros((vocabulary,)).at[at].add(by.astype(mx.float32))
        self._penal = bool(options.presence or options.frequency)
        self._counts = mx.zeros((vocabulary,))
        self._seen = mx.zeros((vocabulary,))
        if options.repetition != 1:
            self._seen = self._seen.at[mx.array(prompt)].add(1.0)

    @property
    def needs_drafts(self) -> bool:
        """Whether :meth:`cut` can leave anything out."""
        return self.grammar is not None

    @property
    def ended(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self.grammar is not None and self.grammar.ended

    @property
    def landed(self) -> bool:
        """Whether the limit forced the answer to its end."""
        return self.grammar is not None and self.grammar.landed

    def cut(self, drafts: list[int]) -> int:
        """Return how many drafts the grammar takes, from the first on."""
        return self.grammar.accepts(drafts) if self.grammar else len(drafts)

    def until_end(self, tokens: list[int]) -> list[int]:
        """Return allowed tokens up to the one behind which the grammar allows nothing more."""
        return tokens[: self.grammar.length(tokens)] if self.grammar else tokens

    def shape(self, logits: mx.array, drafts: list[int], room: int) -> mx.array:
        """Return the logits ``[1, drafts + 1, vocabulary]`` that tokens are chosen by.

        Args:
            logits: the target's.
            drafts: those that :meth:`cut` left.
            room: the tokens that may still be committed before these rows.
        """
        shaped = logits.astype(mx.float32)
        if self._penal or self.options.repetition != 1:
            shaped = self._penalized(shaped, drafts)
        if self._bias is not None:
            shaped = shaped + self._bias
        if self.grammar is not None:
            allowed = mx.array(self.grammar.masks(drafts, self._vocabulary, room))
            shaped = mx.where(allowed[None], shaped, -mx.inf)
        return shaped

    def commit(self, tokens: tuple[int, ...]) -> None:
        """Take in what the round committed."""
        if self._penal or self.options.repetition != 1:
            at = mx.array(tokens)
            self._counts = self._counts.at[at].add(1.0)
            self._seen = self._seen.at[at].add(1.0)
        if self.grammar is not None:
            self.grammar.commit([token for token in tokens if token not in self.stops])

    def report(
        self, logits: mx.array, tokens: tuple[int, ...]
    ) -> list[tuple[int, float, Alternatives]] | None:
        """Return the log-probabilities of tokens and of the likeliest beside them, by the model itself."""
        if self.options.logprobs is None:
            return None
        rows = logits[0, : len(tokens)].astype(mx.float32)
        found = rows - mx.logsumexp(rows, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(found, mx.array(tokens)[:, None], axis=-1)[:, 0]
        top = self.options.logprobs
        best: list[Alternatives] = [[] for _ in tokens]
        if top:
            at = mx.argsort(-found, axis=-1)[:, :top]
            values = mx.take_along_axis(found, at, axis=-1)
            ids, logprobs = cast("list[list[int]]", at.tolist()), cast("list[list[float]]", values.tolist())
            best = [list(zip(*row, strict=True)) for row in zip(ids, logprobs, strict=True)]
        return list(zip(tokens, cast("list[float]", chosen.tolist()), best, strict=True))

    def _penalized(self, logits: mx.array, drafts: list[int]) -> mx.array:
        met = mx.zeros((1, self._vocabulary))
        if drafts:
            ones = (mx.arange(self._vocabulary) == mx.array(drafts)[:, None]).astype(mx.float32)
            met = mx.concatenate([met, mx.cumsum(ones, axis=0)])
        counts, seen = (self._counts + met)[None], (self._seen + met)[None]
        by = self.options.repetition
        if by != 1:
            logits = mx.where(seen > 0, mx.where(logits > 0, logits / by, logits * by), logits)
        return logits - self.options.frequency * counts - self.options.presence * (counts > 0)
