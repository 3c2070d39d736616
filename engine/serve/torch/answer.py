"""Decodes one answer in turns over torch. A turn is a chunk of its prompt or one token."""

import hashlib
import time
from collections.abc import Generator
from typing import Any

from engine.dflash.step import Stats, Step, Timing
from engine.dflash.stops import Stops
from engine.live_bytes import live_bytes
from engine.serve.backend import Job, Piece
from engine.serve.torch.chooser import Chooser, Reported
from engine.serve.torch.model import TorchModel
from engine.torch import kakeya_cache


class TorchAnswer:
    """An answer in progress, with its cache. The prompt is read in chunks of ``chunk`` tokens."""

    def __init__(self, job: Job, model: TorchModel, chunk: int) -> None:
        self.job, self.model = job, model
        self.prefilling, self.done, self.alone = True, False, True
        self.stats = Stats()
        self.cached = self.predicted = 0
        self.together = 1
        options = job.options
        self.fallback: str | None = None
        if options.draft not in ("auto", "none"):
            self.fallback = (
                f"The backend torch makes no drafts by {options.draft}; it decoded without drafts."
            )
        self._chunk, self._digest = chunk, hashlib.sha256()
        self._tokens: list[int] = []
        self._cache = kakeya_cache(model.net, options.cache, options.boundary)
        splitter = options.splitter() if options.splitter is not None and options.stop else None
        self._stops = Stops(model.tokenizer, None, options.stop, splitter)
        self._chooser = Chooser(options, job.ids, model.vocabulary, self._stops.tokens)
        self._turns = self._all_turns()

    @property
    def steps(self) -> int:
        """The number of pieces that the answer has given."""
        return self.stats.steps

    @property
    def nbytes(self) -> int:
        """Bytes of the cache."""
        return live_bytes(self._cache.layers)

    def turn(self, output: Any = None) -> Piece | None:  # noqa: ARG002 - it waits for nothing
        """Read a chunk of the prompt, or decode a token."""
        piece = next(self._turns)
        if self.done:
            self.close()
        return piece

    def close(self) -> None:
        """Release the cache."""
        self._turns.close()

    def _all_turns(self) -> Generator[Piece | None, None, None]:
        ids, room = self.job.ids, self.job.options.max_tokens
        began = time.monotonic()
        for start in range(0, len(ids), self._chunk):
            logits = self.model.forward(ids[start : start + self._chunk], self._cache)
            yield None
        self.prefilling, prefill = False, time.monotonic() - began
        finish_reason = None
        while finish_reason is None:
            began = time.monotonic()
            row = logits.cpu()
            cut = self._stops.take(self._chooser.choose(row, room)[:room])
            room -= len(cut.tokens)
            finish_reason, text = self._ended(cut.tokens, cut.text, stopped=cut.stopped, room=room)
            reported = self._chooser.report(row, cut.tokens)
            if finish_reason is None:
                logits = self.model.forward(list(cut.tokens), self._cache)
            timing = Timing(verify=time.monotonic() - began)
            step = Step(cut.tokens, text=text, finish_reason=finish_reason, timing=timing, prefill=prefill)
            prefill = 0.0
            yield self._piece(step, reported)

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

    def _piece(self, step: Step, logprobs: list[Reported] | None) -> Piece:
        self.stats.add(step)
        self._tokens += step.tokens
        self._digest.update("".join(f"{token}," for token in step.tokens).encode())
        self.done = step.finish_reason is not None
        report = self._report() if self.done or self.job.options.live else {}
        if logprobs is not None and step.tokens and step.tokens[-1] in self._stops.tokens:
            logprobs = logprobs[:-1]
        return Piece(self.job.index, step.text, len(step.tokens), logprobs, step.finish_reason, report)

    def _report(self) -> dict[str, Any]:
        options = self.job.options
        return {
            "draft": "none",
            "cache": f"{options.cache}-b{options.boundary}" if options.boundary else options.cache,
            "rounds": 0,
            "proposed": 0,
            "accepted": 0,
            "accept_length": None,
            "cached_tokens": 0,
            "cache_bytes": self.nbytes,
            "together": self.together,
            "joint_rounds": 0,
            "joint_drafts": 0,
            "injection": None,
            "stop": self._stops.matched,
            "closed_early": self._chooser.closed_early,
            "token_digest": f"sha256:{self._digest.hexdigest()}",
            "prefill_seconds": self.stats.prefill,
            "decode_seconds": self.stats.seconds,
            "fallback": self.fallback,
            "agreement": None,
            **({"token_ids": self._tokens} if self.done and options.token_ids else {}),
        }
