"""What the tiny family learns from: files, tokens, generated tasks, rows."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.train.data import answers as chats
from engine.train.data import corpus, tasks
from engine.train.data.corpus import File
from engine.train.data.text import source as rows_of
from training import prompts, tokenizer
from training.rows import HARD, Rows, windows

CODE = "\n".join(f"def function_{i}(value):\n    return value + {i}  # line {i}" for i in range(400))


@pytest.fixture(scope="module")
def words():
    return tokenizer.train([CODE, *tasks.PREFIXES], vocabulary=400)


def test_a_file_that_repeats_a_held_out_one_is_not_learned_from():
    held = [File("python", "a.py", CODE)]
    other = File("p", "c.py", "\n".join(f"other_{i} = compute_something_else({i})" for i in range(100)))
    mostly_same = File("p", "d.py", CODE.replace("function_1(", "renamed("))
    kept = list(corpus.without_repeats([File("p", "b.py", CODE), mostly_same, other, other], held))
    assert kept == [other]


def test_a_package_gives_no_more_than_its_cap():
    files = [File("p", str(i), "x" * 40) for i in range(5)]
    assert len(corpus.capped(files, 100)) == 2


@given(st.text())
def test_text_comes_back_from_its_tokens(words, text):
    text = text.encode(errors="ignore").decode()
    assert words.decode(words.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_tokens_of_their_own(words):
    assert [words.decode([i]) for i in words.encode("4821").ids] == list("4821")


def test_transformers_reads_the_tokenizer(words, tmp_path):
    tokenizer.save(words, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.encode("def f(x):", add_special_tokens=False) == words.encode("def f(x):").ids
    assert (loaded.eos_token_id, loaded.mask_token_id) == (0, 3)
    turns = loaded.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert turns == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("make", [tasks.named_values, tasks.notes, tasks.needles_in_code])
@pytest.mark.parametrize("seed", range(20))
def test_every_answer_stands_earlier_in_its_task(make, seed):
    pieces = make(random.Random(seed), 200, CODE.splitlines())
    before = ""
    answers = 0
    for text, weight in pieces:
        if weight == tasks.ANSWER:
            answers += 1
            assert text.strip().removesuffix(tokenizer.TURN_END) in before
        before += text
    assert answers


def test_a_task_is_about_as_long_as_asked(words):
    for size in (120, 500):
        sizes = [
            len(
                words.encode(
                    "".join(text for text, _ in tasks.draw(random.Random(i), size, CODE.splitlines()))
                ).ids
            )
            for i in range(30)
        ]
        assert size / 4 < np.median(sizes) < size * 3


def test_rows_depend_on_seed_and_step_alone(words):
    files = [File("python", "a.py", CODE), File("other", "b.py", CODE[::-1])]
    first, again, other = (Rows(words, files, seed) for seed in (1, 1, 2))
    tokens, weights = first.batch(7, 4, 64)
    assert tokens.shape == (4, 65)
    assert weights.shape == (4, 64)
    again.batch(3, 4, 64)
    assert np.array_equal(tokens, again.batch(7, 4, 64)[0])
    assert not np.array_equal(tokens, other.batch(7, 4, 64)[0])
    assert not np.array_equal(tokens, first.batch(8, 4, 64)[0])


def test_a_mix_decides_the_kinds_of_tasks(words):
    only = ((tasks.notes, 1.0),)
    rows = Rows(words, [File("python", "a.py", CODE)], 0, task_share=1.0, mix=only)
    tokens, _ = rows.batch(0, 4, 256)
    assert all("paragraph" in words.decode(row.tolist()) for row in tokens)
    assert {make for make, _ in HARD} == {make for make, _ in tasks.TASKS}
    assert max(HARD, key=lambda kind: kind[1])[0] is tasks.needles_in_code


def test_answers_weigh_more_than_what_surrounds_them(words):
    rows = Rows(words, [File("python", "a.py", CODE)], 0, task_share=1.0)
    _, weights = rows.batch(0, 8, 128)
    assert set(np.unique(weights)) <= {np.float32(w) for w in (0.1, 0.5, 1.0, 2.0)}
    assert (weights == tasks.ANSWER).any()


def test_windows_cover_a_file_without_overlap(words):
    found = list(windows(words, [File("python", "a.py", CODE)], 32))
    ids = words.encode(CODE).ids
    assert [w[0] for w in found] == ids[: len(found) * 32 : 32]
    assert all(len(w) == 33 for w in found)


def test_answers_follow_their_prompts_in_the_order_of_the_prompts(tmp_path):
    batches = []

    def write(batch):
        batches.append([len(prompt) for prompt in batch])
        return [[prompt[0] + 100, 0] for prompt in batch]

    asked = [[1, 2, 3], [4], [5, 6]]
    stream = chats.stream(asked, lambda: write, tmp_path / "answers.npy")
    assert stream.tolist() == [1, 2, 3, 101, 0, 4, 104, 0, 5, 6, 105, 0]
    assert batches == [[1, 2, 3]]  # prompts of one length stand together
    assert chats.stream(asked, lambda: pytest.fail("made twice"), tmp_path / "answers.npy").tolist() == [
        *stream
    ]


def test_rows_are_drawn_from_a_stream_of_answers():
    stream = np.arange(1000, 1100, dtype=np.uint32)
    rows = rows_of(np.arange(500), stream, share=1.0, length=20)(np.random.default_rng(0), 8)
    assert rows.shape == (8, 20)
    assert ((rows >= 1000) & (np.diff(rows, prepend=rows[:, :1] - 1) == 1)).all()


def test_prompts_of_code_are_documented_functions():
    source = (
        "class A:\n    def area(self, width, height):\n"
        '        """Return the area of a rectangle."""\n        return width * height\n'
    )
    library = corpus.Corpus((File("python", "a.py", source),), ())
    (prompt,) = prompts.code(library, random.Random(1))
    assert "area" in prompt
    assert "Return the area of a rectangle." in prompt


def test_prompts_of_chat_are_all_different():
    texts = list(prompts.chat(random.Random(0)))
    assert len(texts) > 2000
    assert len(set(texts)) == len(texts)
    assert not any("{" in text for text in texts)


def test_shared_runs_of_words_are_counted():
    assert prompts.overlap(["a b c d e f g h i"], ["x a b c d e f g h", "nothing here"]) == (2, 1)
