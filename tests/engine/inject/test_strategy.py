"""How a package takes caches of ours: found out from what it is, undone at the end, never seen by another model."""

import threading
import types

import pytest

from engine.inject.strategy import Decision, decide, injected


class Model:
    pass


class WithMaker(Model):
    def make_cache(self):
        return ["its own"]


def package(stream_generate=None, maker=None):
    made = types.SimpleNamespace()
    made.stream_generate = stream_generate or (lambda _: None)
    if maker:
        made.make_prompt_cache = maker
    return made


def own(model, *_):
    return model.make_cache() if hasattr(model, "make_cache") else ["its own"]


def test_the_models_own_maker_comes_first():
    target, other = WithMaker(), WithMaker()
    made = package(maker=own)
    decision = decide(made, target)
    assert decision == Decision("model-make-cache", "make_cache")
    with injected(decision, made, target, ["ours"]) as injection:
        assert made.make_prompt_cache(other) == ["its own"]
        assert injection.times_taken == 0
        assert made.make_prompt_cache(target) == ["ours"]
        assert injection.times_taken == 1
    assert made.make_prompt_cache(target) == ["its own"]
    assert "make_cache" not in vars(target)


def test_then_the_name_in_the_package_for_the_target_alone():
    target, draft = Model(), Model()
    made = package(maker=own)
    decision = decide(made, target)
    assert decision == Decision("module-prompt-cache", "make_prompt_cache")
    with injected(decision, made, target, ["ours"]) as injection:
        assert made.make_prompt_cache(draft) == ["its own"]
        assert made.make_prompt_cache(target, 5) == ["ours"]
        assert injection.times_taken == 1
    assert made.make_prompt_cache is own


def test_nothing_to_take_hold_of():
    assert decide(package(), Model()) == Decision("none")


def test_strategy_of_no_name():
    with (
        pytest.raises(RuntimeError, match="no strategy 'magic'"),
        injected(Decision("magic"), package(), Model(), []),
    ):
        pass


def test_undone_after_an_error_too():
    made = package(maker=own)
    with (
        pytest.raises(ZeroDivisionError),
        injected(Decision("module-prompt-cache", "make_prompt_cache"), made, Model(), []),
    ):
        raise ZeroDivisionError
    assert made.make_prompt_cache is own


def test_threads_take_turns():
    """Two threads inject into one package: each target gets its own caches, and the name is as before."""
    made = package(maker=own)
    decision = Decision("module-prompt-cache", "make_prompt_cache")
    wrong = []

    def run(caches):
        target = Model()
        for _ in range(200):
            with injected(decision, made, target, caches):
                if made.make_prompt_cache(target) != caches:
                    wrong.append(caches)

    threads = [threading.Thread(target=run, args=([i],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert made.make_prompt_cache is own
