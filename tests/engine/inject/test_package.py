"""The real package over caches of ours, compared with our own plain loop."""

import functools

import pytest

from engine.cache import make_caches
from engine.dflash import stream_generate
from engine.inject.package import NotInjectedError, Package, steps
from engine.inject.strategy import replaced
from engine.lm import cache
from engine.models import load
from tests.engine import small_models as random_models

package_module = pytest.importorskip("dflash.model_mlx")

TEXT = "import os\nimport sys\n\n\ndef main(argv):\n    return os.path.join(*argv)\n" * 6
STRATEGIES = {"tiny": "module-prompt-cache", "tiny-hybrid": "model-make-cache"}


@pytest.fixture(scope="module", params=["tiny", "tiny-hybrid"])
def pair(request):
    return load(request.param, dtype="float32")


@pytest.fixture(scope="module")
def package(pair):
    return Package(pair)


def ids_of(pair):
    return pair.tokenizer.encode(TEXT)[:150]


def plain(pair, spec, most):
    found = stream_generate(
        pair.target,
        None,
        pair.tokenizer,
        ids_of(pair),
        max_tokens=most,
        caches=make_caches(pair.target, spec),
    )
    return [token for step in found for token in step.tokens]


@pytest.mark.parametrize("spec", ["raw", "e8v@4.25", "affine@4g64", "e8@q38"])
def test_tokens_are_those_of_plain_decoding(pair, package, spec):
    assert package.decision.strategy == STRATEGIES[pair.name]
    caches = make_caches(pair.target, spec)
    if pair.name == "tiny-hybrid" and spec == "e8@q38":
        with pytest.raises(NotInjectedError, match="wrapped sliding window"):
            next(package.stream(ids_of(pair), caches, 24, chunk=64))
        return
    responses = package.stream(ids_of(pair), caches, 24, chunk=64)
    found = list(steps(responses, package.block, 24))
    assert [token for step in found for token in step.tokens] == plain(pair, spec, 24)
    assert sum(step.accepted for step in found) > 0
    assert all(each.offset > 150 for each in caches)  # it is these that it used
    assert package_module.make_prompt_cache is cache.make_prompt_cache
    assert "make_cache" not in vars(package.target)


@pytest.mark.parametrize("asks", [0, 1, 2])
def test_caches_that_were_not_used_are_noticed(pair, package, monkeypatch, asks):
    """A package that decodes over caches of its own would do so uncompressed, and say nothing."""
    original = package_module.stream_generate

    def stock(model):
        own = getattr(type(model), "make_cache", None)
        return own(model) if own else [cache.KVCache() for _ in model.layers]

    @functools.wraps(original)
    def disobedient(*args, **kwargs):
        for _ in range(asks):
            package_module.make_prompt_cache(package.target)
        responses = original(*args, **kwargs)
        with replaced(package_module, "make_prompt_cache", stock):
            first = next(responses)
        yield first

    monkeypatch.setattr(package_module, "stream_generate", disobedient)
    with pytest.raises(NotInjectedError, match="other caches" if asks == 1 else f"{asks} times"):
        next(package.stream(ids_of(pair), make_caches(pair.target, "e8v@4.25"), 24, chunk=64))


def test_recurrent_layers_are_refused(package):
    caches = make_caches(random_models.qwen3_5(), "raw")
    with pytest.raises(NotInjectedError, match="recurrent"):
        next(package.stream([1, 2, 3], caches, 4, chunk=64))


def test_answers_may_interleave(pair, package):
    """Two answers over one target, a round of each in turn: the hooks on its layers are shared."""
    expected = {spec: plain(pair, spec, 20) for spec in ("raw", "e8v@4.25")}
    open_ = {
        spec: package.stream(ids_of(pair), make_caches(pair.target, spec), 20, chunk=64) for spec in expected
    }
    found = {spec: [] for spec in expected}
    while open_:
        for spec, responses in list(open_.items()):
            response = next(responses, None)
            if response is None:
                del open_[spec]
            else:
                found[spec] += response.tokens
    assert found == expected


def test_pair_without_a_drafter():
    with pytest.raises(NotInjectedError, match="no DFlash drafter"):
        Package(load("tiny", False, dtype="float32"))
