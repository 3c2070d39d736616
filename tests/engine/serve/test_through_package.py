"""Answers by the dflash package: the same tokens, told of in the report; what it cannot do is told too."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("dflash")

WORDS = "import os\nimport sys\n\n\ndef main(argv):\n    return os.path.join(*argv)\n" * 4
STRATEGIES = {"tiny": "module-prompt-cache", "tiny-hybrid": "model-make-cache"}


def ask(server, model="tiny", draft="dflash-package", **fields):
    own = {"draft": draft, **fields.pop("x_kakeya", {})}
    body = {"model": model, "prompt": WORDS, "max_tokens": 24, "temperature": 0, "x_kakeya": own, **fields}
    response = server.http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    found = response.json()
    return found["choices"][0], found["x_kakeya"]


@pytest.mark.parametrize("model", STRATEGIES)
@pytest.mark.parametrize("cache", ["raw", "e8v@4.25"])
def test_same_answer_as_plain(server, model, cache):
    plain, _ = ask(server, model, "none", x_kakeya={"cache": cache, "prefix": False})
    found, told = ask(server, model, x_kakeya={"cache": cache})
    assert (found["text"], found["finish_reason"]) == (plain["text"], plain["finish_reason"])
    assert told["fallback"] is None
    assert told["draft"] == "dflash-package"
    assert told["injection"] == STRATEGIES[model]
    assert told["accepted"] > 0
    assert told["cache_bytes"] > 0


def test_stop_and_limit(server):
    whole, _ = ask(server, draft="none")
    stop = whole["text"][6:9]
    for fields in ({"stop": stop}, {"max_tokens": 1}, {"max_tokens": 7}):
        plain, _ = ask(server, draft="none", **fields)
        found, told = ask(server, **fields)
        assert (found["text"], found["finish_reason"]) == (plain["text"], plain["finish_reason"])
        assert told["fallback"] is None


def test_several_clients_and_engines_at_once(server):
    kinds = [("tiny", "dflash-package"), ("tiny-hybrid", "dflash-package"), ("tiny", "dflash")] * 2
    alone = {model: ask(server, model, "none")[0]["text"] for model, _ in kinds}
    with ThreadPoolExecutor(len(kinds)) as pool:
        found = list(pool.map(lambda kind: ask(server, *kind), kinds))
    for (model, draft), (choice, told) in zip(kinds, found, strict=True):
        assert choice["text"] == alone[model]
        assert told["draft"] == draft
        assert told["fallback"] is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"response_format": {"type": "json_object"}}, "grammars"),
        ({"min_p": 0.1, "temperature": 0.5}, "min_p"),
        ({"seed": 3, "temperature": 0.5}, "seed"),
        ({"logit_bias": {"5": 1}}, "biases"),
    ],
)
def test_what_it_cannot_do_is_told(server, fields, said):
    found, told = ask(server, **fields)
    assert told["fallback"].startswith("The dflash package was not used")
    assert said in told["fallback"]
    assert told["injection"] is None
    plain, _ = ask(server, draft="none", **fields)
    if fields.get("temperature", 0) == 0:
        assert found["text"] == plain["text"]


def test_wrapped_rings_are_told(server):
    found, told = ask(server, "tiny-hybrid", x_kakeya={"cache": "e8@q38"})
    assert "wrapped sliding window" in told["fallback"]
    assert found["text"] == ask(server, "tiny-hybrid", "none", x_kakeya={"cache": "e8@q38"})[0]["text"]
