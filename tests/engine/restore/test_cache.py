import json

import pytest

from engine.cache import make_caches
from engine.errors import BadInput
from engine.evals.controls import noise
from engine.evals.liveness import counters
from engine.harness import cache_bytes
from engine.lm import cache as lm_cache
from engine.mx import mx
from engine.restore import Compressed, Exact, Learned, Noise, RestoredCache, restored_caches
from tests.engine import evals_world as world
from tests.engine import folders
from tests.engine import small_models as models

SINK, WINDOW, CHUNK, LENGTH = 2, 8, 8, 45


def _restored(model, source):
    return restored_caches(model, SINK, WINDOW, source)


@pytest.mark.parametrize("make", [models.llama, models.gemma3, models.gemma4, models.gpt_oss])
def test_what_was_there_changes_nothing_and_noise_does(make):
    model, tokens = make(), models.tokens(LENGTH)
    plain = models.read(model, lm_cache.make_prompt_cache(model), tokens, CHUNK)
    kept = _restored(model, lambda _: Exact())
    assert mx.abs(models.read(model, kept, tokens, CHUNK) - plain).max().item() < 1e-4
    poisoned = _restored(model, lambda i: Noise(noise(i)))
    assert mx.abs(models.read(model, poisoned, tokens, CHUNK) - plain).max().item() > 0.01
    gone = _restored(model, lambda _: None)
    assert mx.abs(models.read(model, gone, tokens, CHUNK) - plain).max().item() > 0.01


def test_evicted_tokens_are_out_of_reach_and_restored_ones_are_not():
    """With one layer nothing carries a token further: the last logits see what attention reads, and no more."""
    model = models.llama(layers=1)
    one = models.tokens(LENGTH)
    other = mx.concatenate([one[:, :10], (one[:, 10:11] + 1) % 128, one[:, 11:]], axis=1)
    for source, reached in ((lambda _: None, False), (lambda _: Exact(), True)):
        logits = [models.read(model, _restored(model, source), tokens, CHUNK) for tokens in (one, other)]
        assert mx.array_equal(*logits).item() != reached
    # The sink and the window are kept.
    for at in (1, LENGTH - 5):
        changed = mx.concatenate([one[:, :at], (one[:, at : at + 1] + 1) % 128, one[:, at + 1 :]], axis=1)
        logits = [
            models.read(model, _restored(model, lambda _: None), tokens, CHUNK) for tokens in (one, changed)
        ]
        assert not mx.array_equal(*logits).item()


def test_injections_are_counted_where_attention_reads():
    model, tokens = models.llama(), models.tokens(LENGTH)
    caches = _restored(model, lambda _: Exact())
    models.read(model, caches, tokens, CHUNK)
    evicted = LENGTH - 1 - SINK - WINDOW  # the last token evicts what is behind the window before it
    assert [(c.evicted, c.injected_positions, c.size()) for c in caches] == [(evicted, evicted, 11)] * 2
    found = counters(caches)
    assert found["injected_positions"] == found["evicted_positions"] == 2 * evicted
    assert found["raw_positions"] == 2 * (SINK + WINDOW + 1)
    assert found["injected_reads"] > found["injected_positions"]
    # What the source keeps is counted with what the cache keeps: 45 positions in float32.
    assert cache_bytes.live(caches)["cache_bytes"] == 2 * 2 * LENGTH * 2 * 64 * 4
    bare = _restored(model, lambda _: None)
    models.read(model, bare, tokens, CHUNK)
    assert counters(bare)["injected_positions"] == 0
    assert counters(bare)["evicted_positions"] == 2 * evicted


@pytest.mark.parametrize(("spec", "near"), [("e8v@6.25", 0.2), ("affine@8g64", 0.05), ("e8@q152", 0.05)])
def test_codes_come_back_near(spec, near):
    model, tokens = models.llama(), models.tokens(LENGTH)
    plain = models.read(model, lm_cache.make_prompt_cache(model), tokens, CHUNK)
    fresh = make_caches(model, spec)
    for cache in fresh:
        vars(cache).update({"views": False} if hasattr(cache, "views") else {})
    caches = _restored(model, lambda i: Compressed(fresh[i]))
    assert 0 < mx.abs(models.read(model, caches, tokens, CHUNK) - plain).max().item() < near
    found = counters(caches)
    assert found["injected_positions"] == 2 * (LENGTH - 1 - SINK - WINDOW)
    assert (found["packed_bytes"] > 0) == (spec != "e8@q152")


@pytest.mark.parametrize("make", [models.llama, models.gemma3])
def test_a_perfect_reconstruction_of_the_projections_is_the_identity(make, monkeypatch):
    """Norm and rotation are the layer's own, at absolute positions."""
    model, tokens = make(), models.tokens(LENGTH)
    seen = {}
    for i, layer in enumerate(model.layers):
        for name in ("k_proj", "v_proj"):
            projection = getattr(layer.self_attn, name)

            def record(x, key=(i, name), projection=projection):
                seen.setdefault(key, []).append(projection(x))
                return seen[key][-1]

            monkeypatch.setattr(layer.self_attn, name, record)
    plain = models.read(model, lm_cache.make_prompt_cache(model), tokens, CHUNK)
    raw = {key: mx.concatenate(parts, axis=1) for key, parts in seen.items()}

    def source(i):
        def reconstruct(start, stop):
            return raw[i, "k_proj"][:, start:stop], raw[i, "v_proj"][:, start:stop]

        return Learned(model.layers[i].self_attn, reconstruct)

    caches = _restored(model, source)
    assert mx.abs(models.read(model, caches, tokens, CHUNK) - plain).max().item() < 1e-4
    assert counters(caches)["injected_positions"] > 0

    def shifted(i):
        def reconstruct(start, stop):
            return raw[i, "k_proj"][:, start + 1 : stop + 1], raw[i, "v_proj"][:, start + 1 : stop + 1]

        return Learned(model.layers[i].self_attn, reconstruct)

    assert mx.abs(models.read(model, _restored(model, shifted), tokens, CHUNK) - plain).max().item() > 0.01


def test_a_source_that_gives_too_little_is_an_error():
    class Forgetful(Exact):
        def take(self, start, keys, values):
            super().take(start, keys[:, :, :1], values[:, :, :1])

    model = models.llama(layers=1)
    with pytest.raises(BadInput, match=r"gave 1 positions back, \d+ were evicted"):
        models.read(model, _restored(model, lambda _: Forgetful()), models.tokens(LENGTH), CHUNK)


def test_what_cannot_be_restored():
    with pytest.raises(BadInput, match="a window of 0"):
        restored_caches(models.llama(), 4, 0, lambda _: None)
    with pytest.raises(BadInput, match="sliding layer"):
        RestoredCache(2, 8, None).make_mask(4, window_size=8)

    class Sliding:
        layers = (None,)

        def make_cache(self):
            return [lm_cache.RotatingKVCache(8)]

    with pytest.raises(BadInput, match="no full-attention layer"):
        restored_caches(Sliding(), 4, 8, lambda _: None)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restored")
    folders.write_target(folder / "model")
    out = folder / "r.json"
    asked = ("--lengths", "256", "--depths", "0.3", "--samples", "2", "--window", "24", "--max-tokens", "2")
    code = world.run(
        "restored-prefill", "--model", folder / "model", *asked, "--caches", "e8v@4.25", "--out", out
    )
    assert code == 0
    return world.report(out)


@pytest.mark.long
def test_the_report_passes_the_gate(report):
    assert world.violations(report) == []
    roles = [arm["role"] for arm in report["arms"]]
    assert roles == ["baseline", "candidate", "identity", "poison", "evicted"]


@pytest.mark.long
def test_rows_show_what_was_put_back(report):
    for row in report["rows"]:
        found = row["counters"]
        if row["arm"] == "raw":
            assert found["evicted_positions"] == 0
        else:
            assert found["evicted_positions"] > 4 * 150
            assert (found["injected_positions"] > 0) == (row["arm"] != "evicted")
    tokens = {(row["arm"], row["prompt"]): row["tokens"] for row in report["rows"]}
    for prompt in report["prompts"]:
        assert tokens["identity", prompt["id"]] == tokens["raw", prompt["id"]]


def _divergences(report):
    return {claim["arm"]: claim["value"] for claim in report["claims"] if claim["name"] == "prompt_kl"}


def test_divergence_orders_the_arms_where_recall_shows_nothing(report):
    found = _divergences(report)
    assert found["identity"] <= 1e-6 < found["restored e8v@4.25"] < found["poison"]
    assert found["restored e8v@4.25"] < found["evicted"]
    for row in report["rows"]:
        prompt = next(one for one in report["prompts"] if one["id"] == row["prompt"])
        assert row["prediction"]["n_positions"] == prompt["n_tokens"] - 2 * 24


def _changed(report, arm, **fields):
    made = json.loads(json.dumps(report))
    row = next(row for row in made["rows"] if row["arm"] == arm)
    row["prediction"] |= fields
    return made


@pytest.mark.parametrize(
    ("arm", "fields"),
    [
        ("evicted", {"n_positions": 3}),
        ("evicted", {"sum_kl": 0.0}),
        ("identity", {"sum_kl": 5.0}),
        ("restored e8v@4.25", {"sum_kl": 0.0}),
    ],
)
def test_claims_about_predictions_follow_from_the_rows(report, arm, fields):
    assert "CLAIM_NOT_FROM_ROWS" in world.violations(_changed(report, arm, **fields))


def test_the_gate_sees_needles_that_need_no_restoration(report):
    made = json.loads(json.dumps(report))
    expected = {prompt["id"]: prompt["expected"] for prompt in made["prompts"]}
    for row in made["rows"]:
        if row["arm"] == "evicted":
            row["text"] = expected[row["prompt"]]
    assert "EVICTED_SURVIVES" in world.violations(made)


def test_a_needle_within_the_window_is_refused(tmp_path, capsys):
    folders.write_target(tmp_path / "model")
    code = world.run("restored-prefill", "--model", tmp_path / "model", "--lengths", "384", "--depths", "1")
    assert code == 2
    assert "stays within the window" in capsys.readouterr().err
