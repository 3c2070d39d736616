"""The catalogue of published models: every entry can be found, and its figures belong to channels that exist."""

import pytest

from engine.cache import spec
from engine.checkpoints.published import ALONE, FOUR_BIT, PUBLISHED, SIZES
from engine.models import catalogue, registry
from engine.serve.channels import Channel

TORCH = {
    "qwen3-4b",
    "qwen2-1.5b",
    "llama-3.2-3b-instruct",
    "llama-3.1-8b-instruct",
    "mistral-7b-instruct-v0.3",
    "gemma-4-e4b",
    "deepseek-r1-distill-qwen-1.5b",
    "deepseek-r1-distill-qwen-7b",
    "glm-4-9b-chat",
}
MLX = {"qwen3-4b", "qwen3-8b", "llama-3.1-8b-instruct", "qwen3.5-4b", "mistral-7b-instruct-v0.3"}


def test_the_nine_and_the_five_are_there():
    full = {name for name in catalogue.ENTRIES if not name.endswith("-4bit")}
    assert full == TORCH | MLX
    assert {name for name in MLX if catalogue.ENTRIES[name].draft is None} == {"mistral-7b-instruct-v0.3"}
    assert not set(PUBLISHED) & set(ALONE)


@pytest.mark.parametrize("name", catalogue.ENTRIES)
def test_an_entry_is_found_by_name_hub_id_and_folder(name, tmp_path):
    found = catalogue.ENTRIES[name]
    source = registry.find(name)
    assert (source.target, source.draft) == (found.target, found.draft)
    for reference in (name, found.target, str(tmp_path / found.target.rpartition("/")[2])):
        assert catalogue.entry(reference) is found


@pytest.mark.parametrize("name", ["tiny", "", "qwen3", "somebody/a-model", "/"])
def test_others_are_not(name):
    assert catalogue.entry(name) is None


@pytest.mark.parametrize("name", catalogue.ENTRIES)
def test_figures_belong_to_channels(name):
    for cache, boundary in catalogue.ENTRIES[name].measured:
        assert spec.parse(cache).family == "classic"
        channel = Channel(name, cache, boundary)
        assert Channel.parse(str(channel)) == channel
        assert boundary >= catalogue.ENTRIES[name].boundary


@pytest.mark.parametrize("name", FOUR_BIT)
def test_weights_of_four_bits_have_the_drafter_and_the_rules_of_the_full_ones(name):
    full, small = registry.find(name), registry.find(f"{name}-4bit")
    assert small.target == FOUR_BIT[name] != full.target
    assert small.draft == full.draft
    assert catalogue.least_boundary(f"{name}-4bit", "e8@q10") == catalogue.least_boundary(name, "e8@q10")
    known = catalogue.entry(f"{name}-4bit")
    assert known is None or (known.measured == {} and known.thinks == catalogue.ENTRIES[name].thinks)


def test_every_published_target_has_a_size_and_four_bits_are_smaller():
    assert set(SIZES) == {*PUBLISHED, *ALONE}
    assert all(SIZES[f"{name}-4bit"] < SIZES[name] / 2.5 for name in FOUR_BIT)
