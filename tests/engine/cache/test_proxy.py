import copy

import pytest

from engine.cache.proxy import CacheProxy
from engine.dflash.rollback.late import LateRing
from engine.evals.controls import ControlCache
from engine.lm import cache as lm_cache


class Counting(CacheProxy, own=("count",)):
    def __init__(self, inner):
        super().__init__(inner)
        self.count = 0

    @property
    def twice(self):
        return 2 * self.count

    @twice.setter
    def twice(self, value):
        self.count = value // 2


class Naming(Counting, own=("label",)):
    pass


def test_everything_but_its_own_attributes_is_the_inner_caches():
    inner = lm_cache.KVCache()
    proxy = Counting(inner)
    proxy.offset = 7
    proxy.count, proxy.anything = 3, "new"
    assert (inner.offset, inner.anything, proxy.offset, proxy.twice) == (7, "new", 7, 6)
    assert not hasattr(inner, "count")
    proxy.twice = 10
    assert proxy.count == 5
    assert not hasattr(inner, "twice")


def test_a_subclass_adds_to_what_is_its_own_and_changes_no_other_class():
    proxy = Naming(lm_cache.KVCache())
    proxy.label = "mine"
    proxy.count = 2
    assert set(vars(proxy)) == {"inner", "count", "label"}
    plain = Counting(lm_cache.KVCache())
    plain.label = "the cache's"
    assert plain.inner.label == "the cache's"


def test_an_own_attribute_that_is_not_set_yet_is_not_looked_for_inside():
    inner = lm_cache.KVCache()
    inner.label = "the cache's"
    proxy = Naming(inner)
    with pytest.raises(AttributeError, match="label"):
        proxy.label  # noqa: B018


def test_a_copy_stands_for_the_same_cache():
    proxy = Counting(lm_cache.KVCache())
    assert copy.copy(proxy).inner is proxy.inner
    assert copy.deepcopy(proxy).inner is not proxy.inner


@pytest.mark.parametrize(
    "make", [lambda inner: ControlCache(inner, None, 0), lambda inner: LateRing(inner, inner)]
)
def test_a_model_that_sets_what_a_cache_holds_sets_it_in_the_cache(make):
    inner = lm_cache.RotatingKVCache(8)
    make(inner).keys = "shared"
    assert inner.keys == "shared"
