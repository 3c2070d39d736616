"""The recipe of the bundled targets, on shrunken shapes: it learns, resumes, and mlx-lm reads what it writes."""

import numpy as np
import pytest

from engine import models
from engine.errors import BadInput
from engine.mx import mx
from engine.train.data.corpus import File
from training import shapes, tokenizer

torch = pytest.importorskip("torch")
recipe = pytest.importorskip("training.target")

CODE = "\n".join(f"def function_{i}(value):\n    return value + {i}  # line {i}" for i in range(600))
FILES = (File("python", "a.py", CODE),)
HELD_OUT = (File("python", "b.py", CODE[:3000]),)  # a few windows: each is read whenever the loss is reported
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 280}
PLAN = recipe.TargetPlan(steps=6, rows=2, length=32, warm_up=2)


@pytest.fixture(scope="module")
def words():
    return tokenizer.train([CODE], vocabulary=280)


@pytest.fixture(params=sorted(shapes.TARGETS))
def config(request):
    small = {**shapes.TARGETS[request.param], **SMALL}
    if "layer_types" in small:
        small |= {"layer_types": small["layer_types"][:4], "sliding_window": 16}
    return small


def trainer(config, words, folder, plan=PLAN):
    return recipe.trainer(config, words, FILES, HELD_OUT, folder, plan)


def weights(run):
    return {name: tensor.numpy() for name, tensor in run.learner.model.state_dict().items()}


def test_it_learns_and_an_interrupted_run_ends_the_same(config, words, tmp_path):
    lines = []
    straight = trainer(config, words, tmp_path / "straight")
    straight.run(lines.append, every=2)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["held_out_loss"] < np.log(280)

    first = trainer(config, words, tmp_path / "broken")

    def stop(line):
        if line["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(stop, every=2)
    second = trainer(config, words, tmp_path / "broken")
    assert second.step == 4
    second.run(lambda _: None)
    for name, value in weights(straight).items():
        np.testing.assert_array_equal(value, weights(second)[name])


def test_mlx_computes_what_torch_does(config, words, tmp_path):
    run = trainer(config, words, tmp_path)
    tokenizer.save(words, tmp_path / "target")
    for parameter in run.learner.model.parameters():
        parameter.data = parameter.data.bfloat16().float()  # as it is stored
    run.learner.export(tmp_path / "target")
    pair = models.load(tmp_path / "target", draft=False)
    tokens = np.random.default_rng(0).integers(0, 280, (1, 60))  # beyond the window
    with torch.no_grad():
        expected = run.learner.model.eval()(input_ids=torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(np.asarray(pair.target(mx.array(tokens))), expected, atol=2e-5)


def test_another_plan_in_the_same_folder_is_refused(config, words, tmp_path):
    trainer(config, words, tmp_path).save()
    with pytest.raises(BadInput, match="another plan"):
        trainer(config, words, tmp_path, recipe.TargetPlan(steps=9, rows=2, length=32))


def test_the_rate_rises_then_falls_to_its_floor():
    plan = recipe.TargetPlan(steps=1000, warm_up=100)
    rates = [plan.rate(step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(rates[99]) == 1.0
    assert rates[-1] == pytest.approx(plan.floor, rel=1e-3)
    assert plan.shape(0) == (8, 512)
    assert plan.shape(999) == (4, 1024)
