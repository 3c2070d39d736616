"""Refining a target: answers are learnt from the text, the rest stays what the target said before."""

import numpy as np
import pytest

from engine.train.data import tasks
from engine.train.data.corpus import File
from training import shapes, tokenizer
from training.rows import WHOLE, Rows

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
target = pytest.importorskip("training.target")
refine = pytest.importorskip("training.refine")

CODE = "\n".join(f"def function_{i}(value):\n    return value + {i}  # line {i}" for i in range(600))
FILES = (File("python", "a.py", CODE),)
HELD_OUT = (File("python", "b.py", CODE[:3000]),)  # a few windows: each is read whenever the loss is reported
ENTRIES = 280
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": ENTRIES}
PLAN = target.TargetPlan(steps=8, rows=2, length=32, warm_up=2)


@pytest.fixture(scope="module")
def words():
    return tokenizer.train([CODE], vocabulary=ENTRIES)


@pytest.fixture(scope="module")
def start(words, tmp_path_factory):
    """The folder of a target to refine."""
    folder = tmp_path_factory.mktemp("start")
    config = {**shapes.TARGETS["tiny"], **SMALL}
    target.trainer(config, words, FILES, HELD_OUT, folder, PLAN).learner.export(folder / "target")
    tokenizer.save(words, folder / "target")
    return folder / "target"


@pytest.fixture
def learner(start):
    held_out = [np.arange(33, dtype=np.int64)]
    return refine.Refiner({**shapes.TARGETS["tiny"], **SMALL}, held_out, PLAN, start=start)


def batch(weight):
    """Two rows of 32 tokens, of which the last eight count as ``weight``, and the others as a task's filler."""
    tokens = np.random.default_rng(1).integers(10, ENTRIES, (2, 33))
    weights = np.full((2, 32), tasks.FILLER, np.float32)
    weights[:, 24:] = weight
    return tokens, weights


def test_before_the_first_step_only_the_answers_cost(learner):
    first = learner.learn(batch(tasks.ANSWER), 0)
    assert first["others"] == pytest.approx(0, abs=1e-6)
    assert first["states"] == 0
    share = 8 * tasks.ANSWER / (8 * tasks.ANSWER + 24 * tasks.FILLER)
    assert first["loss"] == pytest.approx(share * first["answers"], rel=1e-5)
    assert first["answers"] == pytest.approx(np.log(ENTRIES), rel=0.1)  # fresh weights know nothing


def test_answers_are_learnt_and_the_rest_is_held(learner):
    lines = [learner.learn(batch(tasks.ANSWER), step) for step in range(PLAN.steps)]
    assert lines[-1]["answers"] < 0.9 * lines[0]["answers"]
    assert lines[-1]["others"] < 0.05 * (lines[0]["answers"] - lines[-1]["answers"])


def test_states_count_in_text_and_not_in_tasks(learner):
    learner.learn(batch(tasks.ANSWER), 0)
    learner.learn(batch(tasks.ANSWER), 1)
    assert learner.learn(batch(WHOLE), 2)["states"] > 0
    assert learner.learn(batch(tasks.ANSWER), 3)["states"] == 0


def test_the_teacher_stays_as_it_was(learner):
    before = [value.clone() for value in learner.teacher.parameters()]
    learner.learn(batch(tasks.ANSWER), 0)
    for was, now in zip(before, learner.teacher.parameters(), strict=True):
        assert torch.equal(was, now)


def test_rows_of_its_own_are_joined_to_the_length_of_a_batch(words):
    rows = Rows(words, FILES, 0, task_share=0.0)
    rows.own, rows.own_share = np.arange(40).reshape(2, 20), 1.0
    tokens, weights = rows.batch(0, 3, 50)
    assert (weights == WHOLE).all()
    for row in tokens:
        for begin in (0, 20):
            assert list(row[begin : begin + 20]) in [list(range(20)), list(range(20, 40))]


def test_openings_end_with_a_line_and_are_encoded_as_prompts_are(words):
    drawn = refine.openings(words, FILES, np.random.default_rng(0), 5)
    assert drawn.shape == (5, refine.OPENING)
    lines = CODE.splitlines(keepends=True)
    for ids in drawn:
        last = words.decode(ids.tolist()).splitlines(keepends=True)[-1]
        end = lines.index(last) + 1
        prompt = words.encode("".join(lines[end - refine.STRETCH : end])).ids
        assert ids.tolist() == prompt[-refine.OPENING :]


def test_a_run_writes_its_rows_once(words, start, tmp_path, monkeypatch):
    monkeypatch.setattr(refine, "OWN_ROWS", 3)
    monkeypatch.setattr(refine, "OWN_TOKENS", 100)
    said = []
    config = {**shapes.TARGETS["tiny"], **SMALL}
    args = (config, words, FILES, HELD_OUT, tmp_path, PLAN)
    run = refine.trainer(*args, start=start, say=said.append)
    run.run(lambda _: None, every=2)
    assert said == [3]
    assert np.load(tmp_path / "written.npy").shape == (3, 100)
    again = refine.trainer(*args, start=start, say=said.append)
    assert (said, again.step) == ([3], PLAN.steps)


def test_what_is_written_lies_between_what_it_was_and_what_it_became(learner, tmp_path):
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    learner.learn(batch(tasks.ANSWER), 0)
    now = {name: value.clone() for name, value in learner.model.state_dict().items()}

    learner.export(tmp_path)

    written = safetensors.load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    mean = (1 - refine.LEARNT) * before[name] + refine.LEARNT * now[name]
    assert not torch.equal(before[name], now[name])
    torch.testing.assert_close(written[name], mean.bfloat16())
    assert all(torch.equal(value, now[name]) for name, value in learner.model.state_dict().items())
