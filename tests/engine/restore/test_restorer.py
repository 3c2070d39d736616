"""A learned restorer: what it gives depends on the text alone, what it holds is counted, what it loads is checked."""

import json
import shutil

import pytest

from engine import models
from engine.errors import BadInput
from engine.evals import needles, restored
from engine.evals.liveness import counters
from engine.harness import cache_bytes, prompt_sets
from engine.models import registry
from engine.mx import mx, tree
from engine.restore import restored_caches
from engine.restore.learned import check, config_for, embed_of, learned_sources
from engine.restore.restorer import Reconstruction, Restorer, RestorerConfig, normed
from engine.restore.weights import load_restorer, save_restorer, target_digest
from tests.engine import evals_world as world
from tests.engine import folders
from tests.engine import small_models as small

SINK, WINDOW, LENGTH, WIDTH = 2, 8, 45, 16


def made(target, digest="sha256:0", dilations=(1, 4)):
    """Return a restorer that has learnt something, if nonsense: a new one gives embeddings alone."""
    restorer = Restorer(config_for(target, digest, width=WIDTH, dilations=dilations))
    restorer.update(
        tree.tree_map_with_path(
            lambda path, x: mx.random.normal(x.shape, key=mx.random.key(len(path))) / x.shape[-1] ** 0.5,
            restorer.parameters(),
        )
    )
    return restorer


def read(target, caches, ids, chunk=WINDOW):
    tokens = mx.array(ids)[None]
    for at in range(0, len(ids), chunk):
        logits = target(tokens[:, at : at + chunk], cache=caches)
    return logits[0, -1]


@pytest.fixture
def ids():
    return small.tokens(LENGTH)[0].tolist()


def test_states_made_piece_by_piece_are_those_of_the_whole(ids):
    target = small.qwen3()
    restorer = made(target)
    assert restorer.config.reach == 15
    rows = normed(embed_of(target)(mx.array(ids)[None]))
    whole = restorer.states(rows)
    pieces = Reconstruction(restorer, embed_of(target), ids)
    for start, stop in ((3, 5), (3, 20), (3, 21), (7, 40)):
        for i in range(2):
            found, expected = pieces.inputs(i, start, stop), restorer.inputs(i, rows, whole)
            assert mx.abs(found - expected[:, start:stop]).max().item() < 1e-5
    with pytest.raises(BadInput, match="not all among the prompt's 45"):
        pieces.inputs(0, 3, 46)


def test_a_state_depends_on_its_reach_and_nothing_after_it(ids):
    target = small.qwen3()
    restorer, embed = made(target), embed_of(target)
    states = restorer.states(normed(embed(mx.array(ids)[None])))
    for at in (10, 30):
        other = [*ids[:at], (ids[at] + 1) % 128, *ids[at + 1 :]]
        changed = mx.abs(restorer.states(normed(embed(mx.array(other)[None]))) - states).max(axis=-1)[0] > 0
        assert changed.tolist() == [at <= i <= at + restorer.config.reach for i in range(LENGTH)]


@pytest.mark.parametrize("make", [small.qwen3, small.gemma3])
def test_what_it_gives_is_read_counted_and_of_this_text_in_this_order(make, ids):
    target = make()
    restorer = made(target)
    layers = len(restorer.config.layers)
    logits = {}
    for name, given in (("as it is", ids), ("permuted", [*ids[:SINK], *reversed(ids[SINK:])])):
        caches = restored_caches(target, SINK, WINDOW, learned_sources(restorer, target, given))
        logits[name] = read(target, caches, ids)
        evicted = 5 * WINDOW - SINK - WINDOW
        found = counters(caches)
        assert found["injected_positions"] == found["evicted_positions"] == layers * evicted
        assert found["injected_reads"] > found["injected_positions"]
    gone = restored_caches(target, SINK, WINDOW, lambda _: None)
    assert mx.abs(logits["as it is"] - read(target, gone, ids)).max().item() > 1e-3
    assert mx.abs(logits["as it is"] - logits["permuted"]).max().item() > 1e-3


def test_one_state_a_position_is_all_that_is_held(ids):
    target = small.qwen3()
    caches = restored_caches(target, SINK, WINDOW, learned_sources(made(target), target, ids))
    read(target, caches, ids)
    held = sum(cache.nbytes for cache in caches)
    evicted = 5 * WINDOW - SINK - WINDOW
    assert cache_bytes.live(caches)["cache_bytes"] == held + 4 * evicted * WIDTH


def test_an_answers_own_positions_are_kept_as_they_are(ids):
    """The prompt's end is evicted too: what was written since is not the restorer's to make."""
    target, prompt = small.qwen3(), 20
    sources = learned_sources(made(target), target, ids[:prompt])
    caches = restored_caches(target, SINK, WINDOW, sources)
    read(target, caches, ids)
    kept = caches[0].source.inner.keys
    assert kept.shape[2] == caches[0].evicted - (prompt - SINK)
    assert caches[0].source.give()[0].shape[2] == caches[0].evicted


@pytest.fixture
def pair(tmp_path):
    """A folder with a target and the restorer that was made for it."""
    folders.write_target(tmp_path / "target")
    target = models.load(tmp_path, draft=False).target
    save_restorer(made(target, target_digest(tmp_path / "target")), tmp_path / "restore")
    return tmp_path


def test_it_comes_with_its_pair_where_it_is_asked_for(pair):
    plain = models.load(pair)
    assert plain.restorer is None
    assert set(plain.parts) == {"target"}
    found = models.load(pair, restore=None)
    assert found.restorer.config.layers == (0, 1, 2, 3)
    assert found.restorer.enter.weight.dtype == found.target.model.norm.weight.dtype
    roles = {entry["role"]: entry for entry in found.describe()}
    assert set(roles) == {"target", "reconstruction"}
    assert roles["reconstruction"]["stored_dtypes"] == ["F16"]
    assert roles["reconstruction"]["parameters"] == sum(
        x.size for x in mx.load(str(pair / "restore" / "model.safetensors")).values()
    )
    elsewhere = models.load(pair / "target", restore=pair)
    assert elsewhere.parts["reconstruction"].folder == pair / "restore"
    assert registry.find(str(pair)).restore is None


def _drop(tensors):
    del tensors["mix.1.down.weight"]


def _add(tensors):
    tensors["mix.2.down.weight"] = tensors["mix.1.down.weight"]


def _reshape(tensors):
    tensors["added.0.weight"] = tensors["added.0.weight"][:, :-1]


def _retype(tensors):
    tensors["norm.weight"] = tensors["norm.weight"].astype(mx.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop, r"lack mix\.1\.down\.weight"),
        (_add, r"holds mix\.2\.down\.weight, for which config\.json has no use"),
        (_reshape, r"added\.0\.weight is \[64, 15\], config\.json says \[64, 16\]"),
        (_retype, r"norm\.weight is I32"),
    ],
)
def test_weights_that_do_not_fit_are_refused(pair, change, message):
    folders.change_tensors(pair / "restore", change)
    with pytest.raises(BadInput, match=message):
        models.load(pair, restore=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "sha256:" + "0" * 64}, "made for another target"),
        ({"target": None}, "lacks target"),
        ({"model_type": "qwen3"}, "holds a qwen3, not a restorer"),
        ({"layers": [0, 0]}, r"layers of a restorer are \(0, 0\)"),
        ({"layers": [0, 1, 2, 5]}, r"layers is \(0, 1, 2, 5\), and the target's \(0, 1, 2, 3\)"),
        ({"width": "wide"}, "width is 'wide'"),
        ({"dilations": []}, r"dilations is \[\]"),
        ({"width": 0}, "sizes of 1 or more"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(pair, changes, message):
    folders.change_config(pair / "restore", **changes)
    with pytest.raises(BadInput, match=message):
        models.load(pair, restore=None)


def test_another_target_of_the_same_shape_is_refused(pair):
    folders.write_target(pair / "target", seed=1)
    with pytest.raises(BadInput, match="made for another target"):
        models.load(pair, restore=None)


def test_cut_short_or_absent(pair):
    path = pair / "restore" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match="cut short"):
        load_restorer(pair / "restore", pair / "target")
    path.unlink()
    with pytest.raises(BadInput, match="holds no"):
        load_restorer(pair / "restore", pair / "target")
    shutil.rmtree(pair / "restore")
    with pytest.raises(BadInput, match=r"no config\.json"):
        load_restorer(pair / "restore", pair / "target")


def test_a_restorer_of_another_width_does_not_fit():
    other = Restorer(RestorerConfig(hidden_size=32, layers=(0, 1)))
    with pytest.raises(BadInput, match="hidden_size is 32, and the target's 64"):
        check(other, small.qwen3())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A run of the evaluation with the restorer that lies beside the target."""
    folder = tmp_path_factory.mktemp("learned")
    folders.write_target(folder / "target", {"num_hidden_layers": 2})
    target = models.load(folder, draft=False).target
    save_restorer(made(target, target_digest(folder / "target")), folder / "restore")
    asked = ("--lengths", "256", "--depths", "0.3", "--samples", "2", "--window", "24", "--max-tokens", "2")
    out = folder / "r.json"
    code = world.run("restored-prefill", "--model", folder, *asked, "--caches", "e8v@4.25", "--out", out)
    assert code == 0
    assert world.violations(world.report(out)) == []
    return json.loads(out.read_text())


def test_the_shuffled_arm_reads_the_same_tokens_in_another_order(ids):
    target = small.qwen3()
    needle = needles.Needle(prompt_sets.Prompt("a", "", tuple(ids)), "X", LENGTH, 0.1, 2)
    arms = {arm.name: arm for arm in restored.arms_of(target, restored.RestoredPlan(), made(target))[0]}
    given = {}
    for name in ("restored learned", "shuffled"):
        source = arms[name].make(needle)[0].source
        source.take(0, mx.zeros((1, 2, LENGTH, 64)), mx.zeros((1, 2, LENGTH, 64)))
        given[name] = source.give()[1][0, 0]
    one, other = given.values()
    assert mx.abs(one - other).max().item() > 0.1


@pytest.mark.long
def test_the_evaluation_has_it_as_an_arm(report):
    arms = {arm["name"]: arm["role"] for arm in report["arms"]}
    assert arms["restored learned"] == "candidate"
    assert arms["shuffled"] == "poison"
    assert [model["role"] for model in report["models"]] == ["target", "reconstruction"]
    rows = {(row["arm"], row["prompt"]): row for row in report["rows"]}
    for prompt in report["prompts"]:
        mine, noise = (rows[name, prompt["id"]] for name in ("restored learned", "poison"))
        assert mine["counters"]["injected_positions"] == noise["counters"]["injected_positions"] > 0
        raw = rows["raw", prompt["id"]]
        assert mine["memory"]["cache_bytes"] < raw["memory"]["cache_bytes"]
