"""An answer's caches are freed with the answer, not when Python's garbage collector happens to run."""

import gc

import pytest

from engine.mx import mx
from engine.serve.backend import Job, Options
from engine.serve.grammars import grammar
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.resident import load_resident
from engine.serve.scheduler.generation import Generation
from engine.serve.scheduler.rounds import Draft, Forward

PROMPT = [5 + i * 7 % 2000 for i in range(140)]


@pytest.fixture(scope="module")
def resident():
    return load_resident("tiny", "auto", "float32")


def answer(resident, prefixes, **options):
    job = Job(0, "tiny", PROMPT, Options(12, temperature=0.0, **options), lambda _: None, 1e18)
    generation = Generation(job, resident, 64, prefixes)
    given = None
    while not generation.done:
        found = generation.turn(given)
        if isinstance(found, Draft):
            given = found.run.propose(found.plan)
        else:
            given = found.run.forward(found.tokens) if isinstance(found, Forward) else None


@pytest.mark.rows(1)
@pytest.mark.parametrize("form", [None, grammar.schema_grammar({"type": "object"})], ids=["free", "json"])
@pytest.mark.parametrize(
    ("cache", "draft"),
    [("raw", "none"), ("raw", "dflash"), ("e8v@4.25:fast", "lookup"), ("affine@4g64", "auto")],
)
def test_caches_are_freed_at_once(resident, draft, cache, form):
    prefixes = Prefixes(64 << 20, 64)
    made = resident.grammars.compiled(form, "tools") if form else None
    options = {"draft": draft, "cache": cache, "grammar": made}
    for _ in range(2):  # keeps the prompt's blocks, and finds them
        answer(resident, prefixes, **options)
    gc.collect()
    gc.disable()
    try:
        before = mx.get_active_memory()
        for _ in range(3):
            answer(resident, prefixes, **options)
        assert mx.get_active_memory() == before
    finally:
        gc.enable()
