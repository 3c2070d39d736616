import json

import numpy as np
import pytest

from engine import cli
from engine.codec.affine import AffineCodec
from engine.evals.rate_distortion import sources
from engine.evals.rate_distortion.sources import DISTRIBUTIONS, capture, draw
from engine.evals.rate_distortion.table import RatePlan, rel_errors, table
from engine.mx import mx
from tests.engine import small_models as models


def _run(*argv):
    with pytest.raises(SystemExit) as ended:
        cli.main(["codec", "rd", *argv])
    return ended.value.code


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "deep" / "rd.json"
    assert _run("--n-vectors", "512", "--bits", "4", "--out", str(path)) == 0
    return json.loads(path.read_text())


def test_the_envelope(report):
    assert (report["kind"], report["schema_version"], report["claims"]) == ("kakeya.codec-rd", 3, [])
    assert report["created_at"].endswith("Z")
    assert set(report["identity"]) >= {"host", "os", "chip", "device", "versions", "blas"}
    assert set(report["identity"]["versions"]) == {"python", "mlx", "mlx_lm", "numpy", "kakeya_bridge"}
    assert report["config"] == {
        "dim": 128,
        "n_vectors": 512,
        "seed": 0,
        "codecs": ["raw", "affine", "classic", "voronoi"],
        "bits": [4],
        "groups": [64, 128],
        "q_ranges": [4, 7, 10, 38],
        "effort": "normal",
        "distributions": list(DISTRIBUTIONS),
        "model": None,
        "text": None,
    }


def test_affine_at_four_bits_is_what_others_measure(report):
    """Published for 4 bits, group 128, D=128: .01001, .01935 and .04368; rotated .00972 and .00652."""
    rows = {(row["distribution"], row["rotated"]): row for row in report["rows"] if row["group"] == 128}
    published = {
        ("gaussian", False): 0.01001,
        ("t4", False): 0.01935,
        ("outliers", False): 0.04368,
        ("t4", True): 0.00972,
        ("outliers", True): 0.00652,
    }
    for key, expected in published.items():
        row = rows[key]
        assert row["stored_bits_per_value"] == 4.25
        assert row["limit"] == pytest.approx(2**-8.5)
        assert abs(row["rel_mse"] - expected) < max(5 * row["rel_mse_stderr"], 0.03 * expected)


def test_no_codec_does_the_impossible(report):
    for row in report["rows"]:
        if row["distribution"] == "gaussian":
            assert row["rel_mse"] + 6 * row["rel_mse_stderr"] > row["limit"]


def test_voronoi_wins_at_equal_bits(report):
    """Against plain and rotated affine codes of the same 4.25 stored bits, on every kind of data."""
    rows = [row for row in report["rows"] if row["stored_bits_per_value"] == 4.25 and not row["nominal"]]
    for distribution in DISTRIBUTIONS:
        errors = {row["codec"]: [] for row in rows}
        for row in rows:
            if row["distribution"] == distribution:
                errors[row["codec"]].append(row["rel_mse"])
        assert max(errors["voronoi"]) < 0.75 * min(errors["affine"])
        assert max(errors["voronoi"]) < 0.005


def test_the_published_code_is_measured_at_its_nominal_bits(report):
    """Published: E8 at Q7 .01189 at 4.25 bits; it loses to affine there."""
    (row,) = (r for r in report["rows"] if r["codec"] == "e8 Q7" and r["distribution"] == "gaussian")
    assert (row["stored_bits_per_value"], row["nominal"]) == (4.25, True)
    assert abs(row["rel_mse"] - 0.01189) < 0.0003


def test_captured_keys_and_values():
    model = models.llama(head_dim=64)
    data = capture(model, models.tokens(700), most=500)
    assert {name: x.shape for name, x in data.items()} == {"keys 64": (500, 64), "values 64": (500, 64)}
    again = capture(model, models.tokens(700), most=500)
    assert all(np.array_equal(data[name], again[name]) for name in data)
    rows = table(data, RatePlan(("affine", "voronoi"), (4,), (64,), (), "fast"))
    assert {(row["codec"], row["distribution"]) for row in rows} == {
        (codec, name) for codec in ("affine", "voronoi") for name in data
    }


@pytest.mark.parametrize("argv", [["--model", "x"], ["--text", "x"]])
def test_a_model_needs_a_text(argv):
    assert _run(*argv) == 2


def test_a_model_that_is_not_there(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("words")
    (tmp_path / "model").mkdir()
    assert _run("--model", str(tmp_path / "model"), "--text", str(tmp_path / "t.txt")) == 2
    assert "has no config.json" in capsys.readouterr().err


def test_nothing_to_measure(capsys):
    assert _run("--n-vectors", "64", "--codecs", "classic", "--dim", "96") == 2
    assert "none of these codecs" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_rows(tmp_path):
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        assert _run("--n-vectors", "64", "--seed", "3", "--out", str(path)) == 0
    first, second = (json.loads(path.read_text())["rows"] for path in paths)
    for rows in (first, second):
        starts = [row.pop("started_s") for row in rows]
        assert starts == sorted(starts)
    assert first == second


def test_json_goes_to_stdout_and_talk_to_stderr(capsys, tmp_path):
    assert _run("--n-vectors", "64", "--json", "--out", str(tmp_path / "r.json")) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["kind"] == "kakeya.codec-rd"
    assert "wrote" in said.err


def test_a_report_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert _run("--n-vectors", "64", "--out", str(tmp_path / "file" / "r.json")) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_data_is_seeded_and_half_precise(distribution):
    x = draw(distribution, 64, 128, seed=1)
    assert x.dtype == np.float32
    assert np.array_equal(x, draw(distribution, 64, 128, seed=1))
    assert not np.array_equal(x, draw(distribution, 64, 128, seed=2))
    assert np.array_equal(x, x.astype(np.float16).astype(np.float32))


def test_outliers_are_two_channels():
    loud = np.abs(draw("outliers", 2048, 128, seed=0)).mean(axis=0) > 5
    assert loud.sum() == 2


def test_affine_bits_are_the_bytes():
    x = mx.array(draw("gaussian", 32, 128, seed=0))
    codec = AffineCodec(128, 4, 64, rotated=True)
    rows = codec.encode(x)
    assert rows.nbytes * 8 == codec.bits_per_vector * 32
    assert rel_errors(x, codec.decode(rows)).max().item() < 0.03


def test_a_zero_vector_has_no_error():
    assert rel_errors(mx.zeros((2, 8)), mx.zeros((2, 8))).tolist() == [0, 0]


def test_a_bundled_model_gives_vectors_by_its_name(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sources, "TOKENS", 128)
    text = tmp_path / "long.txt"
    text.write_text("def first(items):\n    return items[0]\n" * 40, encoding="utf-8")

    assert _run("--model", "tiny", "--text", str(text), "--n-vectors", "64", "--json") == 0
    assert {"keys 64", "values 64"} <= {
        row["distribution"] for row in json.loads(capfd.readouterr().out)["rows"]
    }
