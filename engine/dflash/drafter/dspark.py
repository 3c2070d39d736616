"""The additions of DSpark: a low-rank Markov head that makes a block sequential, and a head for confidences.

The layout is that of the published checkpoints. The logits of each draft gain a term that depends on the previous
token, ``markov_w2(markov_w1[token])``. So a block is drafted token by token, over logits from one pass. The
confidence of a draft is the sigmoid of a linear map of its state and of the previous token's code. It is known before
the draft is chosen, so the end of a block never depends on a draft that is cut, and sampling stays exact.
"""

from collections.abc import Callable

from engine.dflash.config import DraftConfig
from engine.mx import integers, mx, nn


class MarkovHead(nn.Module):
    """The term of rank ``markov_rank`` that a token adds to the logits of the next token."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.vocab_size, bias=False)

    def draft(
        self, logits: mx.array, before: mx.array, pick: Callable[[mx.array], mx.array]
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Return tokens ``[1, n]``, logits ``[1, n, vocabulary]``, and each previous token's code, ``[1, n, rank]``.

        The body's logits are ``[1, n, vocabulary]``, ``before`` is the token before the first draft, ``[1]``, and
        ``pick`` leads from logits ``[1, 1, vocabulary]`` to tokens ``[1, 1]``.
        """
        tokens, scores, codes = [before[:, None]], [], []
        for row in range(logits.shape[1]):
            codes.append(self.markov_w1(tokens[-1]))
            scores.append(logits[:, row, None] + self.markov_w2(codes[-1]))
            tokens.append(pick(scores[-1]).astype(before.dtype))
        tokens_out, scores_out, codes_out = (mx.concatenate(x, axis=1) for x in (tokens[1:], scores, codes))
        return tokens_out, scores_out, codes_out


class ConfidenceHead(nn.Module):
    """Estimates how likely the target is to accept each draft if it accepts all drafts before it."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.with_markov = config.confidence_head_with_markov
        rank = config.markov_rank if self.with_markov else 0
        self.proj = nn.Linear(config.hidden_size + rank, 1)

    def __call__(self, hidden: mx.array, codes: mx.array) -> mx.array:
        """Return probabilities ``[1, n]`` of states ``[1, n, hidden]`` and codes ``[1, n, rank]``."""
        inputs = mx.concatenate([hidden, codes], axis=-1) if self.with_markov else hidden
        return mx.sigmoid(self.proj(inputs).astype(mx.float32))[..., 0]


def count_confident(confidences: mx.array, threshold: float) -> int:
    """Return the number of drafts before the first one below the threshold, at least 1. Waits for the device."""
    sure = mx.cumprod((confidences[0] >= threshold).astype(mx.int32))
    return max(1, *integers(sure.sum()[None]))
