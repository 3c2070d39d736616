"""Kept prompts: what comes back is bit for bit what was read, on every kind of cache."""

import pytest

from engine.cache import make_caches
from engine.dflash.propose.proposer import Proposer
from engine.mx import mx, tree
from engine.serve.backend import Job, Options
from engine.serve.prefix_cache.prefix import Prefixes
from engine.serve.prefix_cache.snapshots import flat
from engine.serve.resident import load_resident
from engine.serve.scheduler.generation import Generation
from tests.engine import small_models as random_models

BLOCK = 64
SPECS = ["raw", "e8v@4.25", "affine@4g64", "e8@q38", "k=e8v@4.25,v=affine@4g32"]


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def resident(request):
    return load_resident(request.param, "auto", "float32")


def prompt(resident, n):
    text = "import os\nimport sys\n\n\ndef main(argv):\n    return os.path.join(*argv)\n" * 30
    return resident.encode(text)[:n]


def answer(resident, ids, prefixes, **options):
    made = []
    job = Job(0, resident.name, ids, Options(12, temperature=0.0, **options), made.append, 0.0)
    generation = Generation(job, resident, BLOCK, prefixes)
    states = None
    while not generation.done:
        piece = generation.turn()
        if states is None and not generation.prefilling:
            states = generation
        if piece:
            made.append(piece)
    return "".join(piece.text for piece in made), generation


def restored(prefixes, *args):
    """Return how many tokens come back, without a store that is waited for."""
    with pytest.raises(StopIteration) as ended:
        next(prefixes.restore(*args))
    return ended.value.value


def arrays(caches):
    """Everything that caches hold, without the room behind it."""
    found = []
    for cache in flat(caches):
        if hasattr(cache, "keys"):
            leaves = [leaf for _, leaf in tree.tree_flatten([cache.keys, cache.values])]
            found += [leaf[:, :, : cache.offset] for leaf in leaves]
        else:
            found += [leaf for leaf in cache.cache if leaf is not None]
    return found


@pytest.mark.rows(1)
@pytest.mark.parametrize(("draft", "spec"), [*(("dflash", spec) for spec in SPECS), ("none", "e8v@4.25")])
def test_warm_answer_is_the_cold_one(resident, spec, draft):
    ids = prompt(resident, 150)
    prefixes = Prefixes(1 << 30, BLOCK)
    cold, first = answer(resident, ids, None, cache=spec, draft=draft)
    filled, second = answer(resident, ids, prefixes, cache=spec, draft=draft)
    warm, third = answer(resident, ids, prefixes, cache=spec, draft=draft)
    assert cold == filled == warm
    assert (first.cached, second.cached, third.cached) == (0, 0, 128)
    for a, b in zip(arrays(first.caches), arrays(third.caches), strict=True):
        assert mx.array_equal(a, b)
    assert first.stats.accepted == third.stats.accepted  # the drafter remembers the same
    if draft == "dflash":
        assert first.stats.accepted > 0


def test_longest_prefix_of_another_prompt(resident):
    prefixes = Prefixes(1 << 30, BLOCK)
    ids = prompt(resident, 300)
    answer(resident, ids, prefixes, draft="dflash")
    other = [*ids[:150], *reversed(ids[150:])]
    cold, _ = answer(resident, other, None, draft="dflash")
    warm, generation = answer(resident, other, prefixes, draft="dflash")
    assert warm == cold
    assert generation.cached == 128
    _, again = answer(resident, ids, prefixes, draft="dflash")
    assert again.cached == 256
    assert prefixes.stats()["blocks"] == 4 + 2  # the two beginnings are shared


def test_answers_do_not_write_into_what_is_kept(resident):
    prefixes = Prefixes(1 << 30, BLOCK)
    ids = prompt(resident, 200)
    answer(resident, ids, prefixes, draft="dflash")
    texts = {answer(resident, ids, prefixes, draft="dflash")[0] for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.rows(1)
def test_one_cache_is_not_taken_for_another(resident):
    prefixes = Prefixes(1 << 30, BLOCK)
    ids = prompt(resident, 200)
    answer(resident, ids, prefixes, cache="raw")
    for options in ({"cache": "e8v@4.25"}, {"draft": "none"}, {"cache": "e8@q38", "boundary": 1}):
        assert answer(resident, ids, prefixes, **options)[1].cached == 0


def test_last_token_is_never_taken(resident):
    prefixes = Prefixes(1 << 30, BLOCK)
    ids = prompt(resident, 129)
    answer(resident, ids, prefixes)
    assert answer(resident, ids, prefixes)[1].cached == 128
    assert answer(resident, ids[:128], prefixes)[1].cached == 64


def test_budget_is_kept_and_the_oldest_end_goes_first(resident):
    ids = prompt(resident, 300)
    measure = Prefixes(1 << 30, BLOCK)
    answer(resident, ids, measure, draft="none")
    one = measure.nbytes // 4
    prefixes = Prefixes(measure.nbytes + one // 2, BLOCK)
    answer(resident, ids, prefixes, draft="none")
    other = list(reversed(ids))[:100]
    answer(resident, other, prefixes, draft="none")
    assert prefixes.nbytes <= prefixes.budget
    assert prefixes.evicted >= 1
    assert answer(resident, other, prefixes, draft="none")[1].cached == 64
    assert answer(resident, ids, prefixes, draft="none")[1].cached < 256
    prefixes.shrink(0)
    assert (prefixes.nbytes, prefixes.stats()["blocks"]) == (0, 0)


def test_forgetting_a_model(resident):
    prefixes = Prefixes(1 << 30, BLOCK)
    answer(resident, prompt(resident, 200), prefixes)
    prefixes.forget("another")
    assert prefixes.nbytes > 0
    prefixes.forget(resident.name)
    assert prefixes.nbytes == 0
    assert answer(resident, prompt(resident, 200), prefixes)[1].cached == 0


def test_recurrent_states_are_kept():
    model = random_models.qwen3_5()
    ids = random_models.tokens(200)
    prefixes = Prefixes(1 << 30, BLOCK)
    path = prefixes.path_of(("m",), ids[0].tolist())
    whole = make_caches(model, "raw")
    for at in range(0, 192, BLOCK):
        model(ids[:, at : at + BLOCK], cache=whole)
        prefixes.keep(path, at + BLOCK, whole, None)
    again = make_caches(model, "raw")
    assert restored(prefixes, path, 150, again, None) == 128
    model(ids[:, 128:192], cache=again)
    for a, b in zip(arrays(whole), arrays(again), strict=True):
        assert mx.array_equal(a, b)


def test_drafter_context_comes_back(resident):
    pair = resident.pair
    ids = prompt(resident, 200)
    prefixes = Prefixes(1 << 30, BLOCK)
    answer(resident, ids, prefixes, draft="dflash")
    proposer = Proposer(pair.draft, pair.target)
    caches = make_caches(pair.target, "raw")
    key = (resident.name, "raw", 0, True)
    assert restored(prefixes, prefixes.path_of(key, ids), 200, caches, proposer) == 192
    assert proposer.context.offset == 192
    assert all(layer.end == 192 for layer in proposer.context.layers)
