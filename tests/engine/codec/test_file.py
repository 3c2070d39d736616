import json

import numpy as np
import pytest

from engine import cli
from engine.codec.voronoi import VoronoiCodec
from engine.evals.rate_distortion.sources import draw
from engine.mx import mx


def _run(*argv):
    with pytest.raises(SystemExit) as ended:
        cli.main(["codec", *map(str, argv)])
    return ended.value.code


@pytest.fixture
def arrays(tmp_path):
    held = {
        "k": mx.array(draw("gaussian", 60, 128, 0)).reshape(3, 20, 128).astype(mx.bfloat16),
        "v": mx.array(draw("t4", 20, 64, 0)),
    }
    mx.save_safetensors(str(tmp_path / "in.safetensors"), held)
    return held


def test_there_and_back(tmp_path, arrays, capsys):
    packed, back = tmp_path / "p.safetensors", tmp_path / "deep" / "b.safetensors"
    assert _run("encode", tmp_path / "in.safetensors", packed, "--bits", "3.25") == 0
    assert _run("decode", packed, back) == 0
    found = mx.load(str(back))
    for name, x in arrays.items():
        assert found[name].dtype == x.dtype
        assert mx.array_equal(found[name], VoronoiCodec(x.shape[-1], 3.25).roundtrip(x)).item()
    capsys.readouterr()
    assert _run("info", packed, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["k"] == {
        "shape": [3, 20, 128],
        "dtype": "bfloat16",
        "codec": "e8v@3.25",
        "nbytes": 3 * 20 * 128 * 13 // 32,
        "bits_per_value": 3.25,
    }
    assert _run("info", packed) == 0
    assert "e8v@3.25" in capsys.readouterr().out


def test_one_array_in_npy(tmp_path):
    np.save(tmp_path / "x.npy", draw("gaussian", 10, 128, 0))
    assert _run("encode", tmp_path / "x.npy", tmp_path / "p.safetensors") == 0
    assert _run("decode", tmp_path / "p.safetensors", tmp_path / "y.npy") == 0
    assert np.load(tmp_path / "y.npy").shape == (10, 128)
    assert _run("info", tmp_path / "x.npy") == 0


def test_what_is_refused(tmp_path, arrays, capsys):
    source, packed = tmp_path / "in.safetensors", tmp_path / "p.safetensors"
    assert _run("encode", source, packed) == 0
    whole = packed.read_bytes()
    mx.save_safetensors(str(tmp_path / "ints.safetensors"), {"i": mx.arange(8)})
    mx.save_safetensors(str(tmp_path / "odd.safetensors"), {"x": mx.zeros((2, 100))})
    (tmp_path / "cut.safetensors").write_bytes(whole[:-10])
    (tmp_path / "text.npy").write_text("hello")
    rows, metadata = mx.load(str(packed), return_metadata=True)
    mx.save_safetensors(str(tmp_path / "other.safetensors"), rows, {**metadata, "kakeya-codec": "e8v/2"})
    mx.save_safetensors(str(tmp_path / "lost.safetensors"), rows, {"kakeya-codec": "e8v/1"})
    wrong = {**metadata, "codec.k": "4.25 64 float16"}
    mx.save_safetensors(str(tmp_path / "wrong.safetensors"), rows, wrong)
    cases = [
        (("encode", tmp_path / "none.npy", packed), "there is no file"),
        (("encode", tmp_path / "x.txt", packed), "neither .npy nor .safetensors"),
        (("encode", source, tmp_path / "p.npy"), "is not .safetensors"),
        (("encode", tmp_path / "ints.safetensors", packed), "int32"),
        (("encode", tmp_path / "odd.safetensors", packed), "no Hadamard rotation of size 100"),
        (("encode", tmp_path / "text.npy", packed), "damaged"),
        (("decode", tmp_path / "cut.safetensors", tmp_path / "b.safetensors"), "damaged"),
        (("decode", source, tmp_path / "b.safetensors"), "not encoded by this program"),
        (("decode", tmp_path / "other.safetensors", tmp_path / "b.safetensors"), "e8v/2"),
        (("decode", tmp_path / "lost.safetensors", tmp_path / "b.safetensors"), "does not say how"),
        (("decode", tmp_path / "wrong.safetensors", tmp_path / "b.safetensors"), "not those of its codec"),
        (("decode", packed, tmp_path / "b.npy"), "holds one array"),
        (("info", tmp_path / "none.npy"), "there is no file"),
    ]
    capsys.readouterr()
    for argv, words in cases:
        assert _run(*argv) == 1, argv
        said = capsys.readouterr().err
        assert words in said
        assert "Traceback" not in said
    assert packed.read_bytes() == whole
    assert not (tmp_path / "b.safetensors").exists()
    assert _run("encode", source, packed, "--bits", "9") == 2
