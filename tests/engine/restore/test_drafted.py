"""A restorer that reads the drafter: what it sees, how it is fitted and loaded, and that the evaluation measures it."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from engine import models
from engine.errors import BadInput
from engine.evals.restored import layers_for
from engine.models import registry
from engine.mx import mx
from engine.restore.cache import restored_layers
from engine.restore.drafted import features, load_drafted
from engine.restore.weights import save_restorer, target_digest
from engine.train.restorer.fit import fit, relative_errors
from tests.engine import evals_world as world
from tests.engine import small_models

DIGESTS = ("sha256:target", "sha256:draft")


@pytest.fixture(scope="module")
def pair():
    return models.load("tiny-hybrid")


@pytest.fixture(scope="module")
def bound(pair):
    return pair.draft.bind(pair.target)


@pytest.fixture(scope="module")
def rows(pair):
    text = "def add(first, second):\n    return first + second\n\n\nclass Shelf:\n    books = [3, 5, 8]\n"
    ids = pair.tokenizer.encode(text * 12)
    rng = np.random.default_rng(0)
    return [rng.permutation(ids)[:96].tolist() for _ in range(13)]


@pytest.fixture(scope="module")
def fitted(pair, bound, rows):
    layers = restored_layers(pair.target, sliding=True)
    return fit(pair.target, bound, layers, rows[:-1], rank=48, digests=DIGESTS)


def test_a_position_reads_the_text_up_to_itself(bound, rows):
    ids = rows[0]
    whole, changed = (features(bound, mx.array(some)) for some in (ids, [*ids[:-1], ids[-1] + 1]))
    assert mx.allclose(whole[:-1], changed[:-1], atol=1e-5).item()
    assert not mx.allclose(whole[-1], changed[-1], atol=1e-2).item()


@pytest.mark.long
def test_a_fit_explains_more_than_half_of_a_row_that_it_has_not_seen(pair, fitted, rows):
    errors = relative_errors(fitted, pair.target, rows[-1])
    assert len(errors) == 2 * len(fitted.config.layers)
    assert sum(errors) / len(errors) < 0.5
    assert max(errors[:2]) < 0.2  # the first layer reads the embeddings alone


@pytest.mark.long
def test_it_is_loaded_as_it_was_saved(pair, bound, fitted, rows, tmp_path):
    save_restorer(fitted, tmp_path / "restore")
    found = load_drafted(tmp_path / "restore", bound, pair.target, DIGESTS, mx.float32)
    assert found.config == fitted.config
    for i in range(len(found.config.layers)):
        ours, theirs = (r.pair(i, r.states(rows[0]))[0] for r in (found, fitted))
        assert mx.abs(ours - theirs).max().item() < 0.02 * mx.abs(theirs).max().item()


@pytest.mark.parametrize(
    ("digests", "message"),
    [(("sha256:x", DIGESTS[1]), "another target"), ((DIGESTS[0], "sha256:x"), "another drafter")],
)
def test_another_pair_is_refused(pair, bound, fitted, tmp_path, digests, message):
    save_restorer(fitted, tmp_path / "restore")
    with pytest.raises(BadInput, match=message):
        load_drafted(tmp_path / "restore", bound, pair.target, digests, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank"),
        ({"sizes": [128]}, "sizes"),
        ({"layers": []}, "layers"),
        ({"draft": 3}, "draft"),
        ({"layers": [0, 1, 2, 3, 4, 5]}, "not those of one kind"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(pair, bound, fitted, tmp_path, change, message):
    save_restorer(fitted, tmp_path / "restore")
    path = tmp_path / "restore" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadInput, match=message):
        load_drafted(tmp_path / "restore", bound, pair.target, DIGESTS, None)


def test_a_target_without_its_drafter_is_refused(tmp_path):
    shutil.copytree(
        registry.data() / "tiny-hybrid", tmp_path / "pair", ignore=shutil.ignore_patterns("draft")
    )
    with pytest.raises(BadInput, match="reads a DFlash drafter"):
        models.load(tmp_path / "pair", restore=None)


def test_the_bundled_one_was_made_for_its_pair():
    found = models.load("tiny-hybrid", draft=False, restore=None)
    folders = [found.parts[role].folder for role in ("target", "draft")]
    assert (found.restorer.config.target, found.restorer.config.draft) == tuple(map(target_digest, folders))


@pytest.mark.long
def test_the_evaluation_measures_it_beside_its_controls(tmp_path):
    out = tmp_path / "r.json"
    asked = (
        "--lengths",
        "224",
        "--depths",
        "0.1",
        "--samples",
        "2",
        "--max-tokens",
        "2",
        "--caches",
        "e8v@4.25",
    )
    assert world.run("restored-prefill", "--model", "tiny-hybrid", *asked, "--out", out) == 0
    report = world.report(out)
    assert (report["config"]["layers"], report["config"]["left_out"]) == ("sliding", {})
    assert not {claim["name"] for claim in report["claims"]} & {"recall", "recall_delta"}
    found = {claim["arm"]: claim["value"] for claim in report["claims"] if claim["name"] == "prompt_kl"}
    assert found["restored e8v@4.25"] < found["restored learned"] < found["shuffled"]
    ratios = {
        claim["against"]: claim["value"]
        for claim in report["claims"]
        if (claim["name"], claim["arm"]) == ("prompt_kl_ratio", "restored learned")
    }
    assert ratios.keys() == {"shuffled", "poison", "evicted"}
    assert max(ratios.values()) < 0.5
    assert world.violations(report) == []


def test_the_layers_that_evict_are_those_of_the_restorer(pair, fitted):
    assert layers_for(pair.target, fitted) == "sliding"
    assert layers_for(pair.target, None) == "full"


@pytest.mark.parametrize("make", [small_models.gemma3, small_models.llama])
def test_a_restorer_of_full_attention_layers_makes_these_evict(make):
    target = make()
    restorer = SimpleNamespace(config=SimpleNamespace(layers=restored_layers(target)))
    assert layers_for(target, restorer) == "full"
