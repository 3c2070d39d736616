"""Models of the catalogue as a server lists and refuses them; none of them is on this machine."""

import shutil

import pytest

from engine.cache import make_caches
from engine.errors import BadInput
from engine.models import catalogue, registry
from engine.serve import listing
from engine.serve.channels import Channel, names_of
from engine.serve.errors import ApiError
from engine.serve.protocol import ChatRequest
from engine.serve.resident import load_resident
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings
from tests.engine import folders

DISTILL = "deepseek-r1-distill-qwen-1.5b"
OURS = ("tiny", "qwen3-4b", "qwen3-8b", DISTILL, "glm-4-9b-chat", "mistral-7b-instruct-v0.3")


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    import huggingface_hub  # noqa: PLC0415 - slow to import

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))


@pytest.fixture
def server():
    return Server(Settings(models=OURS), EngineThread)


def choose(server, model, **own):
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "x_kakeya": own or None}
    return server.choose(ChatRequest.model_validate(body))


def told(server, name):
    return listing.model(server, name)["x_kakeya"]


def test_availability_is_what_is_on_disk(server):
    assert {name: told(server, name)["available"] for name in OURS} == {name: name == "tiny" for name in OURS}
    assert told(server, "qwen3-4b")["dflash_draft_repo"] == "z-lab/Qwen3-4B-DFlash-b16"
    assert not told(server, "qwen3-4b")["dflash_available"]
    assert told(server, "mistral-7b-instruct-v0.3")["dflash_draft_repo"] is None
    assert told(server, "tiny")["dflash_available"]
    plain = Server(Settings(models=OURS, draft="none"), EngineThread)
    assert not told(plain, "tiny")["dflash_available"]  # none is loaded, although it lies there


def test_half_a_model_is_not_available(tmp_path):
    folder = tmp_path / "pair"
    shutil.copytree(registry.DATA / "tiny", folder)
    server = Server(Settings(models=(str(folder),)), EngineThread)
    assert told(server, "pair")["dflash_available"]
    (folder / "draft" / "model.safetensors").write_bytes(b"cut short")
    assert told(server, "pair")["available"]
    assert not told(server, "pair")["dflash_available"]
    (folder / "target" / "model.safetensors").unlink()
    assert not told(server, "pair")["available"]


def test_channels_with_their_figures(server):
    qwen = told(server, "qwen3-4b")
    assert qwen["default_channel"] == "qwen3-4b@e8-q38"
    assert qwen["perplexity"] == {
        "qwen3-4b@e8-q10": "+3.85 ± 1.25 %",
        "qwen3-4b@e8-q4": "+17.00 ± 5.34 %",
    }
    assert "qwen3-4b@e8-q38" in qwen["unmeasured"]
    assert qwen["advanced"] == ["qwen3-4b@e8-q4"]
    assert "qwen3-4b@e8v-4.25" in qwen["channels"]
    assert not qwen["thinking"]  # its drafter learnt from answers without thoughts
    never = told(server, "qwen3-8b")
    assert set(never["unmeasured"]) == set(never["channels"]) - {"qwen3-8b@raw"}


@pytest.mark.parametrize("name", OURS)
def test_every_listed_channel_may_be_asked_for(server, name):
    for channel in told(server, name)["channels"]:
        chosen = choose(server, channel)
        assert str(Channel(name, chosen.cache, chosen.boundary)) == channel


@pytest.mark.parametrize("name", [pair["name"] for pair in catalogue.pairs()])
def test_the_server_and_the_list_of_pairs_name_the_same_channels(name):
    (pair,) = [pair for pair in catalogue.pairs() if pair["name"] == name]
    about = listing.catalogued(name, name)

    assert about["channels"] == pair["channels"]
    assert about["default_channel"] == pair["channel"]
    assert [Channel.parse(each).short for each in about["channels"]] == [name] * len(about["channels"])


@pytest.mark.parametrize("name", ["tiny", "tiny-hybrid"])
def test_a_loaded_pair_offers_what_it_offered_before(name):
    before = listing.catalogued(name, name)["channels"]
    resident = load_resident(name, "none", "float32")

    assert listing.catalogued(name, name, resident)["channels"] == before


def test_an_unknown_model_offers_what_it_can_use_once_it_is_loaded(tmp_path):
    folder = folders.write_pair(tmp_path / "pair") / "target"
    server = Server(Settings(models=(str(folder),)), EngineThread)
    assert told(server, "target")["channels"] == ["target@raw"]
    assert told(server, "target")["default_channel"] == "target@raw"
    resident = load_resident(str(folder), "none", "float32")
    server.engine.residents.by_name[str(folder)] = resident
    specs = [choose(server, channel).cache for channel in told(server, "target")["channels"]]
    assert specs == list(resident.caches)
    for spec in ("raw", "e8v@4.25", "e8@q38", "affine@4g64"):
        try:
            make_caches(resident.pair.target, spec)
        except BadInput:
            assert spec not in specs
        else:
            assert spec in specs


def test_a_channel_has_an_entry_of_its_own(server):
    found = listing.model(server, f"{DISTILL}@e8-q10-b3")
    assert found["id"] == f"{DISTILL}@e8-q10-b3"
    assert (found["x_kakeya"]["cache"], found["x_kakeya"]["boundary"]) == ("e8@q10", 3)
    for name in (f"{DISTILL}@e8-q10", "huge@e8-q10", "tiny@zip", "huge"):
        with pytest.raises(ApiError) as refused:
            listing.model(server, name)
        assert refused.value.status == 404


def test_distill_keeps_its_outer_layers_raw(server):
    assert told(server, DISTILL)["default_channel"] == f"{DISTILL}@e8-q38-b2"
    assert choose(server, f"{DISTILL}@e8-q38-b3").boundary == 3
    assert choose(server, DISTILL, cache="e8v@4.25").boundary == 2  # nothing was said: the least that works
    assert choose(server, DISTILL).boundary == 0  # raw
    for model, own, status in (
        (f"{DISTILL}@e8-q38", {}, 404),
        (f"{DISTILL}@affine-4g64-b1", {}, 404),
        (DISTILL, {"cache": "e8@q38", "boundary": 1}, 422),
        (f"{DISTILL}@e8-q38-b2", {"boundary": 0}, 422),
    ):
        with pytest.raises(ApiError, match="boundary of at least 2") as refused:
            choose(server, model, **own)
        assert refused.value.status == status
        assert f"{DISTILL}@" in refused.value.message
        assert "-b2" in refused.value.message
    assert choose(server, "qwen3-4b@e8-q38").boundary == 0


def test_folders_of_the_same_name_are_all_reachable(tmp_path):
    folders = [tmp_path / each for each in ("a/model", "b/model", "b/other", "b/tiny", "c/b/model")]
    for folder in folders:
        folder.mkdir(parents=True)
    names = names_of(["tiny", *map(str, folders), "org/model"])
    inner = f"{tmp_path.name}/b/model"
    assert set(names) == {"a/model", "b/tiny", "c/b/model", "org/model", "other", "tiny", inner}
    assert sorted(names.values()) == sorted(["tiny", *map(str, folders), "org/model"])
