"""Decodes one answer in turns over torch. A turn is a chunk of its prompt, or one token and its accepted drafts."""

import time
from collections.abc import Generator
from typing import Any

import torch

from engine.dflash.propose.adaptive import Adaptive, Fixed, Policy
from engine.dflash.propose.costs import Nominal
from engine.dflash.propose.lookup import Lookup
from engine.dflash.step import Step, Timing
from engine.dflash.stops import Stops
from engine.live_bytes import live_bytes
from engine.serve.backend import Job, Piece
from engine.serve.torch.chooser import Chooser, Reported
from engine.serve.torch.drafts import Drafts
from engine.serve.torch.model import TorchModel
from engine.serve.turns.kit import Answer
from engine.torch import kakeya_cache


class TorchAnswer(Answer):
    """An answer in progress, with its cache. The prompt is read in chunks of ``chunk`` tokens."""

    def __init__(self, job: Job, model: TorchModel, chunk: int) -> None:
        super().__init__(job)
        self.model, options = model, job.options
        if options.draft not in ("auto", "none", "lookup"):
            self.fallback = (
                f"The backend torch makes no drafts by {options.draft}; it decoded without drafts."
            )
        self._chunk = chunk if model.chunked else len(job.ids)
        self._room = options.max_tokens
        self._cache = kakeya_cache(model.net, options.cache, options.boundary)
        splitter = options.splitter() if options.splitter is not None and options.stop else None
        self._stops = Stops(model.tokenizer, None, options.stop, splitter)
        self._chooser = Chooser(options, job.ids, model.vocabulary, self._stops.tokens)
        self._drafts = Drafts(Lookup() if options.draft in ("auto", "lookup") else None, self._policy())
        self._turns = self._all_turns()

    def _policy(self) -> Policy:
        options = self.job.options
        if options.draft == "lookup":
            return Fixed()
        if options.drawn_by_seed:
            return Adaptive(Nominal())
        return self.model.policy((options.cache, options.boundary, options.grammar is not None))

    @property
    def nbytes(self) -> int:
        """Bytes of the cache."""
        return live_bytes(self._cache.layers)

    def turn(self, output: Any = None) -> Piece | None:  # noqa: ARG002 - it waits for nothing
        """Read a chunk of the prompt, or decode a token and its drafts."""
        piece = next(self._turns)
        if self.done:
            self.close()
        return piece

    def close(self) -> None:
        """Release the cache."""
        self._turns.close()

    def _all_turns(self) -> Generator[Piece | None, None, None]:
        ids, prompt = self.job.ids, time.monotonic()
        for start in range(0, len(ids), self._chunk):
            rows = self.model.forward(ids[start : start + self._chunk], self._cache)
            yield None
        self.prefilling = False
        if not self._drafts.begin(ids, self._cache) and self.job.options.draft == "lookup":
            self.fallback = "This model's states cannot forget rejected drafts; it decoded without drafts."
        began, drafts, prefill = time.monotonic(), list[int](), time.monotonic() - prompt
        while not self.done:
            tokens, accepted, text, reported, finish_reason = self._judge(rows.cpu(), drafts)
            seconds = time.monotonic() - began
            if finish_reason is None:
                self._drafts.learn(tokens, accepted, seconds, self._cache)
            step = Step(
                tokens,
                accepted=accepted,
                text=text,
                drafter=self._drafts.drafter,
                proposed=len(drafts),
                finish_reason=finish_reason,
                timing=Timing(verify=seconds),
                prefill=prefill,
            )
            yield self._add(step, reported, self._stops)
            if finish_reason is None:
                began, prefill = time.monotonic(), 0.0
                drafts = self._drafts.propose(self._room, self._chooser.allowed)
                rows = self.model.forward([*tokens[-1:], *drafts], self._cache, len(drafts) + 1)

    def _judge(
        self, rows: torch.Tensor, drafts: list[int]
    ) -> tuple[tuple[int, ...], int, str, list[Reported] | None, str | None]:
        """Choose a token from each row, up to the first one that is not the draft.

        Returns the tokens, how many of them are drafts, their text and log-probabilities, and why the answer ends.
        """
        tokens, accepted, text = tuple[int, ...](), 0, ""
        reported: list[Reported] | None = None if self.job.options.logprobs is None else []
        for row, draft in zip(rows, [*drafts, None], strict=True):
            cut = self._stops.take(self._chooser.choose(row, self._room)[: self._room])
            self._room -= len(cut.tokens)
            reason, more = self._ended(cut.tokens, cut.text, stopped=cut.stopped, room=self._room)
            tokens, text = (*tokens, *cut.tokens), text + more
            if reported is not None:
                reported += self._chooser.report(row, cut.tokens) or []
            accepted += cut.tokens == (draft,)
            if reason is not None or cut.tokens != (draft,):
                break
        return tokens, accepted, text, reported, reason

    def _ended(
        self, tokens: tuple[int, ...], text: str, *, stopped: bool, room: int
    ) -> tuple[str | None, str]:
        """Pass on the accepted tokens. Returns why the answer ends, if it does, and its new text."""
        reason = "stop" if stopped else None if room else "length"
        self._chooser.commit(tokens)
        if self._chooser.ended and reason in (None, "length"):
            reason, stopped = "stop", False
        if reason is not None and not stopped:
            text += self._stops.flush()
        if self._chooser.closed_early and reason == "stop":
            reason = "length"
        return reason, text

    def _own_report(self) -> dict[str, Any]:
        agreement = self.model.agreement if self._drafts.possible else None
        return {
            "closed_early": self._chooser.closed_early,
            "agreement": agreement.as_dict() if agreement is not None else None,
        }
