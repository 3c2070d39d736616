"""Everything at once: drafts, packed caches, kept prompts, several clients and grammars change no token.

Each cell's answers are those of one client alone, cold, without drafts, on the same cache and grammar; its counters
show that what it is about was at work. A pass over drafts or over several answers rounds otherwise than one over a
single row, so an answer from a packed cache may be another one if rounding explains it.
"""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from benchmarks.ties import Ties
from engine.evals.serve_conformance import COMMON, FORMS, SCHEMA
from engine.serve.resident import load_resident
from tests.engine.serve.world import backends, serving

MODELS = ("tiny", "tiny-hybrid")
DRAFTS = ("none", "lookup", "dflash")
CACHES = ("raw", "e8v@4.25", "affine@4g64")
WARMTHS = ("cold", "warm")
CLIENTS = (1, 4)
CELLS = list(itertools.product(MODELS, DRAFTS, CACHES, WARMTHS, CLIENTS, FORMS))
# Few cells in which each pair of values of two axes meets once at least.
SAMPLE = [
    ("tiny", "none", "raw", "warm", 4, "json_schema"),
    ("tiny", "lookup", "e8v@4.25", "cold", 4, "free"),
    ("tiny", "dflash", "affine@4g64", "warm", 1, "free"),
    ("tiny", "dflash", "e8v@4.25", "warm", 4, "json_schema"),
    ("tiny", "lookup", "raw", "cold", 1, "json_schema"),
    ("tiny-hybrid", "none", "e8v@4.25", "warm", 1, "free"),
    ("tiny-hybrid", "none", "affine@4g64", "cold", 4, "json_schema"),
    ("tiny-hybrid", "lookup", "affine@4g64", "warm", 1, "json_schema"),
    ("tiny-hybrid", "lookup", "raw", "warm", 4, "free"),
    ("tiny-hybrid", "dflash", "raw", "cold", 4, "free"),
    ("tiny-hybrid", "dflash", "e8v@4.25", "cold", 1, "json_schema"),
]
# The same over torch, which has neither DFlash drafts nor kept prompts, and decodes several answers in turns.
TORCH_DRAFTS, TORCH_CACHES = ("none", "lookup"), ("raw", "e8v@4.25")
TORCH_CELLS = list(itertools.product(MODELS, TORCH_DRAFTS, TORCH_CACHES, ("cold",), CLIENTS, FORMS))
TORCH_SAMPLE = [
    ("tiny", "none", "e8v@4.25", "cold", 4, "json_schema"),
    ("tiny", "lookup", "raw", "cold", 4, "free"),
    ("tiny", "lookup", "e8v@4.25", "cold", 1, "free"),
    ("tiny-hybrid", "lookup", "raw", "cold", 1, "json_schema"),
    ("tiny-hybrid", "none", "e8v@4.25", "cold", 4, "free"),
    ("tiny-hybrid", "lookup", "e8v@4.25", "cold", 4, "json_schema"),
    ("tiny", "none", "raw", "cold", 1, "json_schema"),
    ("tiny-hybrid", "none", "raw", "cold", 1, "free"),
]
# To the JSON an end is one more line that differs, so that four clients read four prompts.
ENDS = ("def read_text(path):\n", "def write_lines(path, lines):\n", "class Reader:\n", "def main(argv):\n")
TOKENS = 32


@pytest.fixture(scope="module", params=backends())
def both(tmp_path_factory, request):
    """A server of both models, over either backend."""
    folder = tmp_path_factory.mktemp("matrix")
    options = ("--backend", request.param, "--model", "tiny", "--model", "tiny-hybrid")
    with serving(folder, *options) as server:
        yield server


over_mlx = pytest.mark.parametrize("both", ["mlx"], indirect=True, scope="module")
over_torch = pytest.mark.parametrize("both", backends()[1:], indirect=True, scope="module")


@pytest.fixture(scope="module")
def plain(both):
    """One client's cold answer without drafts, by model, cache, form and prompt."""
    held = {}

    def found(model, cache, form, end):
        key = model, cache, form, end
        if key not in held:
            held[key] = ask(both, model, "none", cache, form, end, prefix=False)
        return held[key]

    return found


@pytest.fixture(scope="module")
def ties():
    """What explains other answers, by model."""
    return {model: Ties(load_resident(model, "none", "float32")) for model in MODELS}


def body_of(model, draft, cache, form, end, *, prefix):
    body = {
        "model": model,
        "prompt": COMMON[form] + (end if form == "free" else f'{{"path":"{len(end)}","lines":1}}\n'),
        "max_tokens": TOKENS,
        "temperature": 0,
        "x_kakeya": {"draft": draft, "cache": cache, "prefix": prefix},
    }
    if form == "json_schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    return body


def ask(server, *cell, prefix):
    response = server.http.post("/v1/completions", json=body_of(*cell, prefix=prefix))
    assert response.status_code == 200, response.text
    return response.json()


def check_text(ties, plain, answer, model, cache, form, end):
    """Compare an answer with the plain one."""
    same, text = plain(model, cache, form, end), answer["choices"][0]["text"]
    if cache != "raw" and text != same["choices"][0]["text"]:
        body = body_of(model, "none", cache, form, end, prefix=False)
        assert ties[model].explains(ties[model].asked("/v1/completions", body), text), (body, text)
        return
    assert text == same["choices"][0]["text"]
    assert answer["usage"]["completion_tokens"] == same["usage"]["completion_tokens"]
    assert answer["choices"][0]["finish_reason"] == same["choices"][0]["finish_reason"]


def check_answers(both, plain, ties, cell):
    """Send the clients' requests at once, check the answers, and return the ``x_kakeya`` section of each."""
    model, draft, cache, warmth, clients, form = cell
    warm, ends = warmth == "warm", ENDS[:clients]
    with ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(ask, both, model, draft, cache, form, end, prefix=warm) for end in ends]
        answers = [each.result() for each in asked]
    for end, answer in zip(ends, answers, strict=True):
        check_text(ties, plain, answer, model, cache, form, end)
        if form == "json_schema":
            jsonschema.validate(json.loads(answer["choices"][0]["text"]), SCHEMA)
        told = answer["x_kakeya"]
        assert told["fallback"] is None
        assert told["cache"] == cache
        assert (told["agreement"] is None) == (draft == "none")
        assert (told["cached_tokens"] > 0) == warm
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == told["cached_tokens"]
        if cache != "raw" and draft != "dflash":  # whose drafter's context is counted too
            assert told["cache_bytes"] < plain(model, "raw", form, end)["x_kakeya"]["cache_bytes"]
    return [answer["x_kakeya"] for answer in answers]


def have_met(told, draft, backend):
    """Say whether the server had several answers to work on at once. On a busy machine clients may miss each other."""
    met = max(each["together"] for each in told) > 1
    if backend == "torch":
        return met
    met = met and sum(each["joint_rounds"] for each in told) > 0
    return met and (draft != "dflash" or sum(each["joint_drafts"] for each in told) > 0)


def check(both, plain, ties, cell):
    model, draft, cache, warmth, clients, form = cell
    warm = warmth == "warm"
    ends = ENDS[:clients]
    if warm:
        for end in ends:
            ask(both, model, draft, cache, form, end, prefix=True)
    for _ in range(5):
        told = check_answers(both, plain, ties, cell)
        if clients == 1 or have_met(told, draft, both.backend):
            break
    assert {each["draft"] for each in told} <= {draft, "none"}
    assert (sum(each["rounds"] for each in told) > 0) == (draft != "none")
    if draft != "none":
        assert sum(each["accepted"] for each in told) > 0
    assert max(each["together"] for each in told) >= min(2, clients)
    joint = clients > 1 and both.backend == "mlx"
    assert (sum(each["joint_rounds"] for each in told) > 0) == joint
    assert (sum(each["joint_drafts"] for each in told) > 0) == (clients > 1 and draft == "dflash")


# A cell here is asked of one server, and then of another that finds only the first one's files.
RESTARTS = [
    ("tiny", "dflash", "e8v@4.25", 2, "free"),
    ("tiny", "lookup", "affine@4g64", 1, "json_schema"),
    ("tiny-hybrid", "dflash", "raw", 1, "json_schema"),
]


@pytest.mark.long
@over_mlx
def test_warm_restart(both, plain, ties, tmp_path):
    options = ("--model", "tiny", "--model", "tiny-hybrid", "--prefix-store", str(tmp_path / "store"))

    def asked(server, cell):
        model, draft, cache, clients, form = cell
        with ThreadPoolExecutor(clients) as pool:
            found = [
                pool.submit(ask, server, model, draft, cache, form, end, prefix=True)
                for end in ENDS[:clients]
            ]
            return [each.result() for each in found]

    with serving(tmp_path, *options) as first:
        before = [asked(first, cell) for cell in RESTARTS]
    with serving(tmp_path, *options) as second:
        after = [asked(second, cell) for cell in RESTARTS]
        stored = second.stats()["prefix_store"]
    for (model, draft, cache, _, form), *answers in zip(RESTARTS, before, after, strict=True):
        for end, cold, warm in zip(ENDS, *answers, strict=False):
            check_text(ties, plain, cold, model, cache, form, end)
            check_text(ties, plain, warm, model, cache, form, end)
            assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            assert warm["x_kakeya"]["draft"] in (draft, "none")
    assert stored["hit"] > 0
    assert stored["refused"] == {}


def name(cell):
    return "-".join(map(str, cell))


@pytest.mark.long
@over_mlx
@pytest.mark.parametrize(
    ("model", "cache", "form"),
    [
        ("tiny", "e8v@4.25", "free"),
        ("tiny", "affine@4g64", "json_schema"),
        ("tiny-hybrid", "e8v@4.25", "json_schema"),
        ("tiny-hybrid", "affine@4g64", "free"),
    ],
)
def test_the_plain_answer_is_explained_and_the_raw_one_is_not(plain, ties, model, cache, form):
    end = ENDS[0]
    asked = ties[model].asked("/v1/completions", body_of(model, "none", cache, form, end, prefix=False))
    text, others = (plain(model, each, form, end)["choices"][0]["text"] for each in (cache, "raw"))
    assert ties[model].explains(asked, text)
    assert others == text or not ties[model].explains(asked, others)


@pytest.mark.long
@over_mlx
@pytest.mark.parametrize("cell", SAMPLE, ids=name)
def test_sampled_cell(both, plain, ties, cell):
    check(both, plain, ties, cell)


@over_torch
@pytest.mark.parametrize("cell", TORCH_SAMPLE, ids=name)
def test_sampled_cell_over_torch(both, plain, ties, cell):
    check(both, plain, ties, cell)


@pytest.mark.sweep
@over_mlx
@pytest.mark.parametrize("cell", CELLS, ids=name)
def test_cell(both, plain, ties, cell):
    check(both, plain, ties, cell)


@pytest.mark.sweep
@over_torch
@pytest.mark.parametrize("cell", TORCH_CELLS, ids=name)
def test_cell_over_torch(both, plain, ties, cell):
    check(both, plain, ties, cell)


@pytest.mark.parametrize(("sample", "cells"), [(SAMPLE, CELLS), (TORCH_SAMPLE, TORCH_CELLS)])
def test_sample_covers_every_pair_of_values(sample, cells):
    for a, b in itertools.combinations(range(len(cells[0])), 2):
        assert {(cell[a], cell[b]) for cell in sample} == {(cell[a], cell[b]) for cell in cells}, (a, b)
