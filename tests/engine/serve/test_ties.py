"""Which greedy answers from packed caches rounding explains (`benchmarks/ties.py`), and which it does not."""

import pytest

from benchmarks.ties import Asked, Ties
from engine.cache import make_caches
from engine.dflash.stops import Stops
from engine.models import load
from engine.mx import mx
from engine.serve.grammars import grammar
from tests.engine.runs import begun
from tests.engine.unrounded import Unrounded

SPECS = ("e8v@4.25", "affine@4g64")
PROMPT = "def main(argv):\n" * 3  # after which each cache gives another answer
# Beside the plain answer of each cache, there is a second one that codes within rounding give.
TIED = {"e8v@4.25": "x = 1\n", "affine@4g64": "def read(path):\n"}
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


@pytest.fixture(scope="module", params=SPECS)
def answer(request, ties):
    """A request, its plain answer's tokens, and all tokens in the order of their likelihood at each of these."""
    asked = asking(ties, PROMPT, request.param)
    caches, last, orders = ties.read(asked), asked.ids[-1], []
    for _ in range(SHORT + 1):
        logits = ties.resident.pair.target(mx.array([[last]]), cache=caches)[0, -1]
        orders.append(mx.argsort(-logits).tolist())
        last = orders[-1][0]
    return asked, [order[0] for order in orders], orders


def text_of(ties, tokens):
    stops = Stops(ties.resident.pair.tokenizer)
    return stops.take(tokens).text + stops.flush()


@pytest.mark.long
@pytest.mark.parametrize("spec", SPECS)
def test_a_flipped_code_explains_another_answer(ties, spec):
    asked = asking(ties, TIED[spec], spec, LONG)
    first, *others = ties.decoded(asked, 32, seed=1)
    assert {*others} - {first}
    for text in {first, *others}:
        assert ties.explains(asked, text)
    # Keys and values that move as far change nothing if they are stored as they are.
    raw = ties.decoded(asking(ties, TIED[spec], "raw", LONG), 32, seed=1)
    assert len({*raw}) == 1


@pytest.mark.long
def test_one_wrong_token(ties, answer):
    asked, tokens, orders = answer
    for at in (0, SHORT // 2, SHORT - 1):
        wrong = [*tokens[:at], orders[at][1], *tokens[at + 1 : SHORT]]
        assert text_of(ties, wrong) != text_of(ties, tokens[:SHORT])
        assert not ties.explains(asked, text_of(ties, wrong))
    assert ties.explains(asked, text_of(ties, tokens[:SHORT]))


@pytest.mark.rows(1)
def test_what_the_model_would_say_after_a_wrong_token(ties, answer):
    asked, _, orders = answer
    second = orders[0][1]
    behind = Asked((*asked.ids, second), asked.cache, SHORT - 1)
    assert not ties.explains(asked, text_of(ties, [second]) + plain(ties, behind))


@pytest.mark.long
def test_another_length(ties, answer):
    asked, tokens, _ = answer
    text = text_of(ties, tokens[:SHORT])
    for other in (text_of(ties, tokens), text_of(ties, tokens[: SHORT - 1]), text[:-1], text + "x", ""):
        assert not ties.explains(asked, other)


@pytest.mark.rows(1)
@pytest.mark.parametrize("other", [*SPECS, "raw", "e8v@6.25"])
def test_the_answer_of_another_cache(ties, answer, other):
    asked, tokens, _ = answer
    text = plain(ties, asking(ties, PROMPT, other))
    assert (text == text_of(ties, tokens[:SHORT])) == (other == asked.cache)
    assert ties.explains(asked, text) == (other == asked.cache)


@pytest.mark.rows(1)
def test_rows_that_see_themselves_unrounded(ties, answer):
    def caches(spec):
        return [Unrounded(cache) for cache in make_caches(ties.resident.pair.target, spec)]

    asked, tokens, _ = answer
    text = plain(Ties(ties.resident, caches=caches), asked)
    assert text != text_of(ties, tokens[:SHORT])
    assert not ties.explains(asked, text)


@pytest.mark.long
def test_answers_with_a_grammar(ties):
    spec = "affine@4g64"  # which takes a third of the time of the other
    asked = asking(
        ties, PROMPT, spec, 32, ties.resident.grammars.compiled(grammar.schema_grammar(SCHEMA), "tools")
    )
    text = plain(ties, asked)
    assert text.endswith("}")
    assert ties.explains(asked, text)
    free = asking(ties, PROMPT, spec, 32)
    for other in (text[:-1], text + "}", '{"path":"a","lines":1}', plain(ties, free)):
        assert not ties.explains(asked, other)
    assert not ties.explains(free, text)


@pytest.mark.long
def test_prompts_are_stored_as_the_server_stores_them(ties):
    pair = load("tiny", dtype="float32")
    asked = asking(ties, PROMPT * 10, SPECS[0])
    caches = begun(pair, asked.ids, asked.cache).caches
    for one, other in zip(caches, ties.read(asked), strict=True):
        assert mx.array_equal(one.keys[:, :, : one.offset], other.keys[:, :, : other.offset])
        assert mx.array_equal(one.values[:, :, : one.offset], other.values[:, :, : other.offset])
