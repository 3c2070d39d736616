from dataclasses import replace

import pytest

from engine.dflash import Tapped
from engine.errors import BadInput
from engine.evals import parity
from engine.harness.arm import Arm
from engine.models import load
from engine.mx import mx
from tests.engine import evals_world as world
from tests.engine import folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folders.write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def pair(folder):
    return load(folder)


def _walk(pair, count=25, prompt=40):
    ids = [(7 * i) % 250 + 1 for i in range(prompt)]
    return ids, parity.walk(pair.target, pair.draft.config.target_layer_ids, ids, count)


def test_a_walk_is_greedy_and_its_taps_are_the_targets(pair):
    ids, made = _walk(pair)
    tokens = mx.array([*ids, *made.tokens[:-1]])[None]
    logits, taps = Tapped(pair.target, list(pair.draft.config.target_layer_ids)).forward(tokens)
    assert mx.argmax(logits[0, len(ids) - 1 :], axis=-1).tolist() == made.tokens
    assert made.taps.shape == taps.shape
    assert mx.abs(made.taps - taps).max().item() < 1e-3


def test_both_sides_see_the_same(pair):
    """Taps follow one another without a gap or an overlap, up to the committed token."""
    _, made = _walk(pair)
    seen = []

    def start():
        def step(bonus, taps, count):
            seen.append((bonus, taps.shape[1], count))
            return parity.Drafted(
                [made.tokens[1], *[0] * (count - 1)] if len(seen) < 3 else [0] * count, None
            )

        return step

    side = Arm("engine", "candidate", parity.OURS, lambda _: start())
    list(parity.rounds(made, (side, side), 8, 3))
    # The first block's first draft is right: it commits that one and the token after it.
    assert seen[::2] == [(made.tokens[0], 40, 7), (made.tokens[2], 2, 7), (made.tokens[3], 1, 7)]
    assert seen[::2] == seen[1::2]


def test_the_package_agrees(pair):
    pytest.importorskip("dflash.model_mlx", exc_type=ImportError)
    _, made = _walk(pair)
    rows = list(parity.rounds(made, parity.sides_of(pair, "package", "bfloat16"), 8, 3))
    assert len(rows) == 3
    assert all(row["reference"] == row["candidate"] for row in rows)
    assert max(row["max_logit_error"] for row in rows) < 1e-4


def test_half_precision_is_near_and_not_the_same(pair):
    _, made = _walk(pair)
    sides = parity.sides_of(pair, "float32", "bfloat16")
    rows = list(parity.rounds(made, sides, 4, 2))
    errors = [row["max_logit_error"] for row in rows]
    assert 1e-4 < max(errors) < 0.5
    assert [side.options["dtype"] for side in sides] == ["float32", "bfloat16"]
    assert sides[0].loop != sides[1].loop
    assert pair.target.model.norm.weight.dtype == mx.float32  # the pair's own model was not cast


def test_another_position_is_seen(pair, monkeypatch):
    _, made = _walk(pair)
    reference, candidate = parity.sides_of(pair, "float32", "float16")

    def late():
        step = candidate.make(None)
        return lambda bonus, taps, count: step(bonus, taps[:, 1:] if taps.shape[1] > 1 else taps, count)

    rows = list(parity.rounds(made, (reference, replace(candidate, make=lambda _: late())), 4, 2))
    assert max(row["max_logit_error"] for row in rows) > 0.05


def test_a_pair_without_a_drafter(folder):
    with pytest.raises(BadInput, match="no drafter"):
        parity.sides_of(load(folder, draft=False), "package", "bfloat16")


def test_the_report(folder, tmp_path, capsys):
    out = tmp_path / "p.json"
    asked = ("--against", "float32", "--max-prompts", "2", "--blocks", "2", "--block-size", "4")
    assert world.run("parity", "--model", folder, *asked, "--out", out) == 0
    assert "engine.dflash bfloat16 against engine.dflash float32" in capsys.readouterr().out
    made = world.report(out)
    assert [model["role"] for model in made["models"]] == ["target", "draft"]
    assert len(made["rows"]) == 4
    assert set(world.violations(made)) <= {"WORKLOAD_DEGENERATE"}  # random weights draft what they will
    (claim,) = made["claims"]
    if claim["value"] < 1:
        assert world.run("parity", "--model", folder, *asked, "--least", "1") == 1


def test_a_report_names_the_block_size_that_was_asked_for(folder, tmp_path):
    """A runner compares it with the command line; a block of one token counts as two."""
    out = tmp_path / "p.json"
    asked = (
        "--against",
        "float32",
        "--max-prompts",
        "1",
        "--blocks",
        "1",
        "--block-size",
        "1",
        "--least",
        "0",
    )
    assert world.run("parity", "--model", folder, *asked, "--out", out) == 0
    made = world.report(out)
    assert (made["config"]["block_size"], [len(row["candidate"]) for row in made["rows"]]) == (1, [1])
