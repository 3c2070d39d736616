import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from bridge.reports.cache_spec import split_list
from bridge.reports.claims.quant import EQUAL, by_arm, quant_claims, verdicts
from engine.cache import make_caches
from engine.cache.spec import parse
from engine.cli.eval import kv_quant
from engine.codec.kinds import make_codec
from engine.codec.voronoi import VoronoiCodec
from engine.errors import BadInput
from engine.evals import quant
from engine.evals.storage import in_half_precision, read_back, stored
from engine.harness.prompt_sets import Prompt
from engine.mx import mx
from tests.engine import evals_world as world
from tests.engine import folders
from tests.engine import small_models as models
from tests.engine.codec.stored import row_bytes


@pytest.mark.parametrize(
    ("spec", "bits"),
    [
        ("raw", 16),
        ("e8v@4.25", 4.375),
        ("e8v@2.25", 2.375),
        ("affine@4g64", 4.5),
        ("affine@8g32", 9),
        ("e8@q10", 5.125),
        ("d4@q7", 4.5),
        ("k=e8v@4.25,v=e8v@2.25", (4.375 + 2.375) / 2),
        ("k=affine@4g64,v=raw", (4.5 + 16) / 2),
    ],
)
def test_every_stored_bit_is_counted_and_no_unused_one(spec, bits):
    """At head size 64; the caches allocate 256 positions for these 40."""
    model = models.llama()
    caches = in_half_precision(make_caches(model, spec))
    keys = mx.random.normal((1, 2, 40, 64), key=mx.random.key(0))
    for cache in caches:
        read_back(cache, keys, keys)
    held = stored(caches, [(keys, keys)] * 2)
    assert 8 * held["cache_bytes"] / (2 * 2 * 2 * 40 * 64) == bits
    assert held["cache_bytes"] == sum(layer["nbytes"] * layer.get("count", 1) for layer in held["layers"])


@pytest.mark.parametrize("make", [models.llama, models.gemma3, models.gemma4])
def test_half_storage_gives_what_a_half_precision_cast_does(make):
    """An uncompressed cache in half precision is near the float32 one, and not it."""
    model, tokens = make(), models.tokens(40)
    wide = quant.teacher_forced(model, tokens, make_caches(model, "raw"))
    half = quant.teacher_forced(model, tokens, in_half_precision(make_caches(model, "raw")))
    assert 0 < mx.abs(wide - half).max().item() < 0.1
    assert half.dtype == mx.float32


def test_errors_are_the_codecs():
    model = models.llama()
    plan = quant.QuantPlan(("e8v@4.25",), tokens=40)
    arms = {arm.name: arm for arm in quant.arms_of(model, plan)[0]}
    tokens = models.tokens(40)
    known = quant.reference(model, tokens, arms["raw"])
    row = quant.score(model, tokens, arms["e8v@4.25"], known)
    error = energy = 0.0
    for pair in known.pairs.values():
        for x in pair:
            half = x.astype(mx.float16)
            back = VoronoiCodec(64, 4.25).roundtrip(half)
            error += mx.square(back.astype(mx.float32) - half.astype(mx.float32)).sum().item()
            energy += mx.square(half.astype(mx.float32)).sum().item()
    assert row["sum_squared_error"] == pytest.approx(error, rel=1e-3)
    assert row["sum_squares"] == pytest.approx(energy, rel=1e-5)
    assert row["n_values"] == 2 * 2 * 2 * 40 * 64


def test_distances_are_those_of_the_definitions():
    rng = np.random.default_rng(0)
    raw, other = (
        mx.array(x - np.log(np.exp(x).sum(-1, keepdims=True)))
        for x in rng.standard_normal((2, 9, 30)).astype(np.float32)
    )
    tokens = models.tokens(10, vocab=30)
    found = quant.distance(raw, other, tokens)
    p, q = np.exp(np.array(raw, np.float64)), np.exp(np.array(other, np.float64))
    assert found["sum_kl"] == pytest.approx((p * np.log(p / q)).sum(), rel=1e-4)
    assert found["same_top"] == (p.argmax(-1) == q.argmax(-1)).sum()
    following = np.array(tokens)[0, 1:]
    assert found["sum_nll"] == pytest.approx(-np.log(q[np.arange(9), following]).sum(), rel=1e-4)


@pytest.mark.parametrize("make", [models.gemma3, models.gemma4])
def test_sliding_layers_are_captured_whole(make):
    """Forty tokens through windows of sixteen: every cache stands for the same values."""
    model, tokens = make(), models.tokens(40)
    arms, _ = quant.arms_of(model, quant.QuantPlan(("e8v@4.25", "e8@q10"), tokens=40))
    known = quant.reference(model, tokens, arms[0])
    rows = {arm.name: quant.score(model, tokens, arm, known) for arm in arms}
    assert len({row["n_values"] for row in rows.values()}) == 1
    assert rows["raw"]["memory"]["cache_bytes"] == 2 * rows["raw"]["n_values"]
    for name in ("raw", "identity"):
        assert (rows[name]["sum_squared_error"], rows[name]["sum_kl"]) == (0, 0)
    assert rows["poison"]["sum_kl"] > 3 * rows["e8v@4.25"]["sum_kl"] > 0


def test_a_model_that_a_cache_does_not_serve():
    """Gemma 4's sharing layers hand their keys to attention without the cache that would say they are codes."""
    with pytest.raises(BadInput, match="cannot use the cache affine@4g64"):
        quant.arms_of(models.gemma4(), quant.QuantPlan(("affine@4g64",)))


@pytest.mark.parametrize("spec", ["e8v@4.25", "e8@q38", "affine@4g64", "k=e8v@4.25,v=affine@4g64"])
def test_a_boundary_that_leaves_every_layer_raw_is_refused(spec):
    assert quant.try_caches(models.llama(layers=3), [spec], 1)[0].keys() == {spec}
    with pytest.raises(BadInput, match="would leave every layer of this model raw") as refused:
        quant.try_caches(models.llama(layers=2), [spec], 1)
    assert refused.value.fix == "a smaller --boundary"


def test_read_back_of_a_packed_view_and_of_codes():
    keys = mx.random.normal((1, 2, 30, 64), key=mx.random.key(0))
    for spec in ("e8v@6.25", "affine@8g64"):
        cache = make_caches(models.llama(), spec)[0]
        back, _ = read_back(cache, keys, keys)
        assert 0 < (mx.square(back - keys).sum() / mx.square(keys).sum()).item() < 1e-3


def test_texts(tmp_path):
    with pytest.raises(BadInput, match="fewer than 16"):
        quant.cut([Prompt("p", "x", (1, 2, 3))], 50)
    assert len(quant.cut([Prompt("p", "x", tuple(range(90)))], 50)[0].ids) == 50

    class Letters:
        def encode(self, text):
            return [*text.encode()]

        def decode(self, ids):
            return bytes(ids).decode()

    found = quant.windows("abcdefghij", Letters(), 4, 9)
    assert [prompt.text for prompt in found] == ["abcd", "efgh"]
    found = quant.windows("abcdabcd\nabcefgh", Letters(), 4, 2)
    assert [(prompt.id, prompt.text) for prompt in found] == [("window-0", "abcd"), ("window-1", "\nabc")]
    with pytest.raises(BadInput, match="3 tokens"):
        quant.windows("abc", Letters(), 4, 9)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quant")
    folders.write_target(folder / "model")
    out = folder / "q.json"
    caches = "e8v@4.25,affine@4g64,e8@q10,k=e8v@5.25,v=e8v@3.25"
    asked = ("--caches", caches, "--tokens", "48", "--max-prompts", "2")
    assert world.run("kv-quant", "--model", folder / "model", *asked, "--out", out) == 0
    assert out.with_suffix(".svg").read_text().startswith("<svg")
    return world.report(out)


def test_the_report_passes_the_gate(report):
    assert world.violations(report) == []


def test_figures_and_ratios(report):
    found = by_arm(report)
    bits = {name: figures["stored_bits_per_value"] for name, figures in found.items()}
    assert bits == {
        "raw": 16,
        "e8v@4.25": 4.375,
        "affine@4g64": 4.5,
        "e8@q10": 5.125,
        "k=e8v@5.25,v=e8v@3.25": 4.375,
        "identity": 16,
        "poison": 16,
    }
    ratios = {
        c["name"]: c for c in report["claims"] if c["name"].endswith("_ratio") and c["arm"] == "e8v@4.25"
    }
    compared = {(c["arm"], c["against"]) for c in report["claims"] if c["name"] == "kl_ratio"}
    lattices, others = ("e8v@4.25", "k=e8v@5.25,v=e8v@3.25"), ("affine@4g64", "e8@q10")
    assert compared == set(itertools.product(lattices, others))
    assert ratios["rel_mse_ratio"]["value"] < 1
    nominal = {arm["name"]: arm["options"].get("nominal_bits_per_value") for arm in report["arms"]}
    assert nominal["e8@q10"] == 8 * np.ceil(8 * np.log2(21)) / 64 + 0.5


def test_no_ratio_where_the_other_cache_stores_less(report):
    made = json.loads(json.dumps(report))
    for row in made["rows"]:
        if row["arm"] == "affine@4g64":
            row["memory"]["cache_bytes"] //= 2
    assert "affine@4g64" not in [claim.get("against") for claim in quant_claims(made)]


def test_the_gate_sees_codes_that_were_not_read(report):
    made = json.loads(json.dumps(report))
    for row in made["rows"]:
        if row["arm"] == "poison":
            row["sum_kl"] = 0
    assert "INJECTION_NEVER_RAN" in world.violations(made)


def test_usage(capsys, tmp_path):
    assert world.run("kv-quant", "--prompts", "a", "--text", "b") == 2
    assert world.run("recall", "--depths", "0.5,2") == 2
    assert world.run("recall", "--lengths", "x") == 2
    capsys.readouterr()
    assert world.run("kv-quant", "--caches", "") == 2
    assert "the list names no cache spec" in capsys.readouterr().err
    assert world.run("acceptance", "--prompts", "") == 2
    assert "no set of prompts is named" in capsys.readouterr().err
    assert world.run("serve-conformance", "--cache", "e8@q38") == 2
    assert "e8@q38 packs nothing" in capsys.readouterr().err


def figures(bits, rel_mse, kl):
    return {"stored_bits_per_value": bits, "rel_mse": rel_mse, "kl": kl}


def test_a_verdict_compares_at_no_more_bits():
    found = {
        "affine@4g64": figures(4.5, 0.01, 0.02), "e8v@4.25": figures(4.46, 0.005, 0.01),
        "e8v@6.25": figures(6.3, 1e-4, 1e-4), "e8@q38": figures(6.7, 1e-4, 1e-4), "d4@q3": figures(4.4, 0.02, 0.01),
    }  # fmt: skip
    arms = [{"name": name, "role": "candidate"} for name in found]

    said = list(verdicts(found, arms))

    assert said == [
        "d4@q3 (4.40 bits) against affine@4g64 (4.50, 0.10 more): mixed, 2.00 times its error and 0.50 times its KL",
        "e8 against affine@4g64: no verdict, every e8 here stores more bits",
        "e8v@4.25 (4.46 bits) against affine@4g64 (4.50): better, 0.50 times its error and 0.50 times its KL",
    ]


FRAGMENTS = yaml.safe_load((Path(__file__).parents[3] / "presets" / "_fragments.yaml").read_text())
ASKED = FRAGMENTS["eval-kv-quant"]["argv"]
LISTS = {"default": kv_quant.CACHES, "preset": ASKED[ASKED.index("--caches") + 1]}


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("caches", LISTS.values(), ids=LISTS)
def test_a_published_lattice_stores_the_bits_of_each_voronoi_code(caches, dim):
    """From 3.25 bits on; at fewer, no published lattice has that rate."""
    specs = [parse(text) for text in split_list(caches)]
    published = {s.text: make_codec(s, dim) for s in specs if s.family == "classic"}
    stored_by = {text: 8 * row_bytes(codec) / dim for text, codec in published.items()}
    widths = [float(s.fields["bits"]) for s in specs if s.family == "e8v"]
    rates = [bits for bits in widths if bits >= 3.25]
    assert rates
    for rate in rates:
        bits = VoronoiCodec(dim, rate).bits_per_vector / dim
        assert [text for text, held in stored_by.items() if abs(held - bits) <= EQUAL], (rate, stored_by)


@pytest.mark.long
def test_texts_of_several_kinds_are_workloads(tmp_path, capsys):
    out = tmp_path / "report.json"
    code = world.run(
        "kv-quant", "--model", "tiny", "--caches", "affine@4g64,e8v@4.25", "--prompts", "code,sums",
        "--max-prompts", "1", "--tokens", "32", "--out", out,
    )  # fmt: skip
    made = world.report(out)
    assert code == 0
    assert {name: told["task"] for name, told in made["workloads"].items()} == {
        "code": "code",
        "sums": "maths",
    }
    assert world.violations(made) == []
    assert "e8v@4.25 (" in capsys.readouterr().out
