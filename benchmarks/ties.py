"""Tell whether rounding explains a greedy answer from a packed cache that is not the expected one.

A forward pass over many rows rounds otherwise than one over a single row. A key or value that lies between two codes
may then get the other code. This is a visible step, and where two tokens are nearly as likely, it can choose between
them. Such an answer is right, but so is not everything that follows another token.

So the answer is decoded again, in several copies. In each of them, every key and value is moved at random by no more
than rounding moves it, just before the cache stores it. A copy whose token is not the answer's is dropped, and the
others take its place. The answer is explained if a copy reaches its end: then there is one history of codes, each of
them the code of a vector within rounding, in which every token of the answer is the greedy choice and the answer ends
where it does. The grammar of the request allows and forces tokens as in the server. No token ids are needed: a copy's
tokens may be any whose text is the answer's.

The prompt except its last token is read once and moved in no copy. The server reads prompts alone, in the same chunks,
so it stores the same codes.

What this cannot see: a fault that moves keys and values by no more than rounding, a fault in reading the prompt that
this process has too, and any fault that happens to give a text which rounding could give as well. It may also refuse a
right answer that needs more flipped codes, or rarer ones, than 128 copies meet.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cache import make_caches
from engine.cache.proxy import CacheProxy
from engine.dflash.stops import Stops
from engine.mx import integers, mx, tree
from engine.serve.backend import Options
from engine.serve.dialects.chat import of_format
from engine.serve.dialects.prompts import render
from engine.serve.grammars.compiled import Compiled
from engine.serve.protocol import ChatRequest, CompletionRequest, parse
from engine.serve.resident import Resident, load_resident
from engine.serve.scheduler.guide import Guide
from engine.serve.settings import Settings

# The largest change of a coordinate, as a part of the largest coordinate of its vector. Measured with `tiny` and raw
# caches, passes of 2 to 13 rows move keys and values by 2^-18.6 at most, and by 2^-21 as a rule.
MOVED = 2.0**-18
# How much less likely than the best token a copy's choice may be, as a difference of logits. Between equal codes,
# passes of 2 to 13 rows move a log-probability by 0.00002 at most.
ROUNDING = 4e-5
COPIES = (32, 128)  # the second number is tried if the first explains nothing
STEPS = 4  # forward passes per token of the answer at most, over all ways to divide its text into tokens


@dataclass(frozen=True)
class Asked:
    """A greedy request.

    Attributes:
        ids: the prompt.
        cache: the cache spec.
        max_tokens: the most tokens of the answer.
        grammar: of the answer; None for a free text.
    """

    ids: tuple[int, ...]
    cache: str
    max_tokens: int
    grammar: Compiled | None = None


class Noise:
    """Moves the vectors of all copies of a branch but the first at random. A seed makes it repeatable."""

    def __init__(self, seed: int) -> None:
        self._key = mx.random.key(seed)

    def __call__(self, x: mx.array) -> mx.array:
        """Return ``[copies, heads, rows, dim]`` with each coordinate moved by ``MOVED`` at most."""
        self._key, own = mx.random.split(self._key)
        by = mx.random.uniform(-MOVED, MOVED, x.shape, key=own) * mx.abs(x).max(axis=-1, keepdims=True)
        return x + by * (mx.arange(x.shape[0]) > 0)[:, None, None, None]


class Moved(CacheProxy, own=("noise",)):
    """A cache that stores what a function makes of keys and values."""

    def __init__(self, inner: Any, noise: Callable[[mx.array], mx.array]) -> None:
        super().__init__(inner)
        self.noise = noise

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        """Append both, moved, and return what the inner cache returns."""
        return self.inner.update_and_fetch(self.noise(keys), self.noise(values))


@dataclass(frozen=True)
class _Branch:
    """Copies that have chosen the same tokens.

    Attributes:
        copies: how many.
        tokens: their tokens.
        caches: one a layer, of all copies. They hold the prompt and the tokens except the last of both.
    """

    copies: int
    tokens: list[int]
    caches: list[Moved]


class Ties:
    """Decodes answers again.

    Args:
        resident: the model, in the type that the server computes in; None loads ``tiny`` in float32.
        chunk: tokens of a prompt that the server reads at once.
        caches: makes the caches of a spec; None takes the engine's.
    """

    def __init__(
        self,
        resident: Resident | None = None,
        *,
        chunk: int = Settings.prefill_chunk,
        caches: Callable[[str], list[Any]] | None = None,
    ) -> None:
        self.resident = resident or load_resident("tiny", "none", "float32")
        self._chunk = chunk
        self._make = caches or (lambda spec: make_caches(self.resident.pair.target, spec))

    def asked(self, path: str, body: dict[str, Any]) -> Asked:
        """Return what the server makes of the body of a request, if it is one of the load benchmark's."""
        most = body.get("max_tokens") or body["max_output_tokens"]
        if path == "/v1/completions":
            request = parse(CompletionRequest, json.dumps(body).encode())
            ids = self.resident.encode(request.prompt, begins=True)
            form = asyncio.run(of_format(request.response_format, self.resident))
        else:
            turns = body.get("messages") or [{"role": "user", "content": body["input"]}]
            request = parse(ChatRequest, json.dumps({"messages": turns}).encode())
            ids, form = self.resident.encode(render(self.resident, request, [])), None
        return Asked(tuple(ids), body["x_kakeya"]["cache"], most, form)

    def explains(self, asked: Asked, text: str, seed: int = 0) -> bool:
        """Return whether rounding explains this text as the answer."""
        caches = self.read(asked)
        return any(self._reaches(asked, text, caches, copies, seed + copies) for copies in COPIES)

    def decoded(self, asked: Asked, copies: int, seed: int = 0) -> list[str]:
        """Return the answers of copies, one text each. All but the first are moved at random."""
        found = [""] * copies
        waiting = [(_spread(self.read(asked), copies, Noise(seed)), list(range(copies)))]
        while waiting:
            branch, places = waiting.pop()
            likeliest = integers(mx.argmax(self._logits(asked, branch), axis=-1))
            choices = [self._chosen(asked, branch, token) for token in likeliest]
            for token in dict.fromkeys(choices):
                rows = [i for i, choice in enumerate(choices) if choice == token]
                following, own = _following(branch, token, rows), [places[i] for i in rows]
                said, ended = self._said(asked, following.tokens)
                if ended:
                    for place in own:
                        found[place] = said
                else:
                    waiting.append((following, own))
        return found

    def read(self, asked: Asked) -> list[Any]:
        """Return caches that hold the prompt except its last token."""
        caches = self._make(asked.cache)
        prompt = mx.array(asked.ids[:-1])[None]
        for at in range(0, len(asked.ids) - 1, self._chunk):
            mx.eval(self.resident.pair.target(prompt[:, at : at + self._chunk], cache=caches))
        return caches

    def _reaches(self, asked: Asked, text: str, caches: list[Any], copies: int, seed: int) -> bool:
        """Return whether one of so many copies decodes this text and ends there."""
        waiting = [_spread(caches, copies, Noise(seed))]
        for _ in range(STEPS * asked.max_tokens):
            if not waiting:
                break
            branch = waiting.pop()
            near = self._near(asked, branch)
            for likely in np.flatnonzero(near.any(axis=0)).tolist():
                token = self._chosen(asked, branch, likely)
                said, ended = self._said(asked, [*branch.tokens, token])
                if ended and said == text:
                    return True
                if not ended and text.startswith(said):
                    rows = np.resize(np.flatnonzero(near[:, likely]), copies).tolist()
                    waiting.append(_following(branch, token, rows))
        return False

    def _near(self, asked: Asked, branch: _Branch) -> np.ndarray:
        """Return which tokens each copy could choose, bool ``[copies, vocabulary]``."""
        logits = np.array(self._logits(asked, branch))
        found: np.ndarray = logits >= logits.max(axis=-1, keepdims=True) - ROUNDING
        return found

    def _logits(self, asked: Asked, branch: _Branch) -> mx.array:
        """Run the branch's last token; return ``[copies, vocabulary]``, lowest for what the grammar refuses."""
        last = [*asked.ids, *branch.tokens][-1]
        logits = self.resident.pair.target(mx.full((branch.copies, 1), last), cache=branch.caches)
        return self._guide(asked, branch.tokens).shape(logits[:, -1:], [])[:, 0]

    def _chosen(self, asked: Asked, branch: _Branch, likeliest: int) -> int:
        """Return the token that the server commits if this one is the likeliest."""
        left = asked.max_tokens - len(branch.tokens)
        return self._guide(asked, branch.tokens).until_end([likeliest], left)[0]

    def _guide(self, asked: Asked, tokens: Sequence[int]) -> Guide:
        """Return the rules of the answer after some tokens."""
        options = Options(asked.max_tokens, temperature=0, grammar=asked.grammar)
        state = asked.grammar.start() if asked.grammar else None
        stops = Stops(self.resident.pair.tokenizer).tokens
        guide = Guide(options, list(asked.ids), self.resident.vocabulary, state, stops)
        guide.commit(tuple(tokens))
        return guide

    def _said(self, asked: Asked, tokens: Sequence[int]) -> tuple[str, bool]:
        """Return the text of tokens, and whether the answer ends with them."""
        stops = Stops(self.resident.pair.tokenizer)
        cut = stops.take(tokens)
        if cut.stopped:
            return cut.text, True
        if len(tokens) == asked.max_tokens or self._guide(asked, tokens).ended:
            return cut.text + stops.flush(), True
        return cut.text, False


def _spread(caches: Sequence[Any], copies: int, noise: Noise) -> _Branch:
    """Return so many copies of caches that hold one sequence. From now on, they store what ``noise`` returns."""
    return _Branch(copies, [], [Moved(_picked(cache, [0] * copies), noise) for cache in caches])


def _following(branch: _Branch, token: int, rows: list[int]) -> _Branch:
    """Return these copies of a branch, which have chosen one token more. A copy may be taken several times."""
    caches = [Moved(_picked(cache.inner, rows), cache.noise) for cache in branch.caches]
    return _Branch(len(rows), [*branch.tokens, token], caches)


def _picked(cache: Any, rows: list[int]) -> Any:
    """Return a cache that holds these sequences of a batch."""
    found = copy.copy(cache)
    if cache.keys is not None:
        at = mx.array(rows)
        found.keys, found.values = tree.tree_map(lambda x: x[at], (cache.keys, cache.values))
    return found
