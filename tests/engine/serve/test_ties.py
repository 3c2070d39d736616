"""Which greedy answers from packed caches rounding explains (`benchmarks/ties.py`), and which it does not."""

from collections import Counter

import pytest

from benchmarks import ties as rule
from benchmarks.ties import Asked, Ties
from engine.cache import make_caches
from engine.dflash.stops import Stops
from engine.mx import mx
from engine.serve import grammar
from tests.engine.unrounded import Unrounded

pytestmark = pytest.mark.slow

SPECS = ("e8v@4.25", "affine@4g64")
PROMPTS = (
    "def main(argv):\n" * 3,
    "import os\n" * 3,
    "class Reader:\n    def read(self):\n" * 2,
    "x = [1, 2, 3]\n" * 6,
    "def read(path):\n",
    "# again\n",
    "for line in lines:\n",
)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 8}, "lines": {"type": "integer", "maximum": 99}},
    "required": ["path", "lines"],
    "additionalProperties": False,
}
LONG, SHORT = 24, 10  # tokens


@pytest.fixture(scope="module")
def ties():
    return Ties()


def asking(ties, prompt, spec, tokens=SHORT, form=None):
    return Asked(tuple(ties.resident.encode(prompt)), spec, tokens, form)


def plain(ties, asked):
    return ties.decoded(asked, 1)[0]


def tokens_of(ties, asked):
    """Return the tokens of the plain answer, and at each of them all tokens in the order of their likelihood."""
    caches, last, found = ties.read(asked), asked.ids[-1], []
    for _ in range(asked.max_tokens):
        logits = ties.resident.pair.target(mx.array([[last]]), cache=caches)[0, -1]
        found.append(mx.argsort(-logits).tolist())
        last = found[-1][0]
    return [each[0] for each in found], found


def text_of(ties, tokens):
    stops = Stops(ties.resident.pair.tokenizer)
    return stops.take(tokens).text + stops.flush()


@pytest.mark.parametrize("spec", SPECS)
def test_what_a_flipped_code_explains(ties, spec):
    """Copies within rounding of one another part where codes flip, and nowhere if keys and values are stored as they are."""
    parted = 0
    for prompt in PROMPTS:
        asked = asking(ties, prompt, spec, LONG)
        first, *others = ties.decoded(asked, 32, seed=1)
        assert ties.explains(asked, first)
        for text in {*others} - {first}:
            parted += 1
            assert ties.explains(asked, text), (prompt, text)
            assert {*ties.decoded(asking(ties, prompt, "raw", LONG), 32, seed=1)} == {
                plain(ties, asking(ties, prompt, "raw", LONG))
            }
    print(spec, parted)
