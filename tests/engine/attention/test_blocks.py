"""Blocks of rows over packed caches, beside single rows: they differ by rounding only, if both store the same codes.

A block rounds otherwise than single rows, so a key or value between two codes may get the other code, and the results
then differ visibly. Here the codes of single rows are stored in both passes. What is left is below 0.00003.
"""

import numpy as np
import pytest

from engine.cache.packed import PackedMixin
from engine.dflash.batched_forward import BatchedForward
from engine.lm import cache as lm_cache
from engine.models import load
from engine.mx import mx
from tests.engine.runs import begun
from tests.engine.unrounded import Unrounded

SPECS = ("e8v@4.25", "affine@4g64")
CLOSE = 1e-4  # of a log-probability
FLIPPED = 0.01  # of the vectors: more of them than that have other codes for another reason than rounding
PROMPT, ROWS = 120, 40  # the ring of tiny-hybrid holds 128
WRONG = 2  # rejected drafts behind those that are kept


class Codes:
    """What caches store, by layer and position: recorded in one pass, then stored in others.

    Attributes:
        kept: how many rows of a pass get the recorded codes; None records.
        stored: number of vectors that got recorded codes.
        flipped: number of those whose own codes are others.
    """

    def __init__(self):
        self.recorded, self.kept, self.stored, self.flipped = {}, None, 0, 0

    def through(self, layer, first, arrays):
        """Return what to store in place of arrays ``[1, heads, rows, ...]``."""
        count = arrays[0].shape[2]
        own = [tuple(x[:, :, i : i + 1] for x in arrays) for i in range(count)]
        if self.kept is None:
            self.recorded.update({(layer, first + i): rows for i, rows in enumerate(own)})
            return arrays
        for i in range(self.kept):
            rows = self.recorded[layer, first + i]
            # Scales differ in their last bits; codes are whole numbers.
            pairs = [(a, b) for a, b in zip(own[i], rows, strict=True) if mx.issubdtype(a.dtype, mx.integer)]
            self.stored += len(pairs) * arrays[0].shape[1]
            self.flipped += sum((a != b).any(axis=(0, 2, 3)).sum().item() for a, b in pairs)
            own[i] = rows
        return tuple(mx.concatenate(parts, axis=2) for parts in zip(*own, strict=True))

    def behind(self, caches):
        """Let caches store what goes through here, from now on."""
        for layer, cache in enumerate(caches):
            if isinstance(cache, PackedMixin):
                cache.encode = self._encoder(layer, cache)
            elif isinstance(cache, lm_cache.QuantizedKVCache):
                cache.update_and_fetch = self._updater(layer, cache)
        return caches

    def _encoder(self, layer, cache):
        def encode(keys, values, codecs):
            rows = type(cache).encode(cache, keys, values, codecs)
            return self.through(layer, cache.offset, rows)

        return encode

    def _updater(self, layer, cache):
        def update(keys, values):
            first = cache.offset
            type(cache).update_and_fetch(cache, keys, values)
            held = [*cache.keys, *cache.values]
            stored = self.through(layer, first, tuple(x[..., first : cache.offset, :] for x in held))
            for x, rows in zip(held, stored, strict=True):
                x[..., first : cache.offset, :] = rows
            return cache.keys_and_values()

        return update


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return load(request.param, False, dtype="float32")


@pytest.fixture(scope="module")
def text(pair):
    lines = "def read_lines(path):\n    with open(path) as stream:\n        return [line for line in stream]\n\n\n"
    return pair.tokenizer.encode(lines * 12)[: PROMPT + ROWS]


def singles(pair, text, spec):
    """Return the log-probabilities of single rows, ``[rows, vocabulary]``, and the codes that they store."""
    run, codes, found = begun(pair, text[: PROMPT + 1], spec), Codes(), []
    codes.behind(run.caches)
    for token in text[PROMPT:]:
        logits, _ = run.forward(mx.array([[token]]))
        run.keep(1, None)
        found.append(logprobs(logits[0]))
    return np.concatenate(found), codes


def logprobs(logits):
    logits = np.array(logits, dtype=np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def block(text, at, rows):
    """Return the tokens of a block, with drafts behind them that will be rejected."""
    return mx.array([[*text[at : at + rows], *range(50, 50 + WRONG)]])


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", SPECS)
def test_a_block_is_its_rows(pair, text, spec):
    expected, codes = singles(pair, text, spec)
    for rows in (2, 3, 5, 8, 13):
        run = begun(pair, text[: PROMPT + 1], spec)
        codes.behind(run.caches)
        for at in range(PROMPT, len(text), rows):
            codes.kept = min(rows, len(text) - at)
            logits, _ = run.forward(block(text, at, codes.kept))
            run.keep(codes.kept, None)
            found = logprobs(logits[0, : codes.kept])
            assert np.abs(found - expected[at - PROMPT :][: codes.kept]).max() < CLOSE, (rows, at)
    assert codes.stored
    assert codes.flipped < FLIPPED * codes.stored


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", SPECS)
def test_blocks_of_several_answers_are_their_rows(pair, text, spec):
    expected, codes = singles(pair, text, spec)
    joint, counts = BatchedForward(pair.target), (1, 5, 2, 5)
    runs = [begun(pair, text[: PROMPT + 1], spec) for _ in counts]
    own = []
    for run in runs:
        own.append(Codes())
        own[-1].recorded = codes.recorded
        own[-1].behind(run.caches)
    ends = [PROMPT] * len(runs)
    for turn in range(6):
        taken = [counts[(i + turn) % len(counts)] for i in range(len(runs))]
        for each, rows in zip(own, taken, strict=True):
            each.kept = rows
        outputs = joint.forward(runs, [block(text, at, rows) for at, rows in zip(ends, taken, strict=True)])
        for i, (logits, _) in enumerate(outputs):
            runs[i].keep(taken[i], None)
            found = logprobs(logits[0, : taken[i]])
            assert np.abs(found - expected[ends[i] - PROMPT :][: taken[i]]).max() < CLOSE, (turn, i)
            ends[i] += taken[i]
    assert sum(each.flipped for each in own) < FLIPPED * sum(each.stored for each in own)


@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", SPECS)
def test_rows_that_see_one_another_unrounded_are_found(pair, text, spec):
    """The tests above can fail: a block with this fault is off by far more."""
    expected, codes = singles(pair, text, spec)
    caches, codes.kept = codes.behind(begun(pair, text[: PROMPT + 1], spec).caches), 8
    packed = (PackedMixin, lm_cache.QuantizedKVCache)
    caches = [Unrounded(cache) if isinstance(cache, packed) else cache for cache in caches]
    logits = pair.target(mx.array([text[PROMPT : PROMPT + 8]]), cache=caches)
    assert np.abs(logprobs(logits[0]) - expected[:8]).max() > 100 * CLOSE
