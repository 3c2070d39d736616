"""Drafts from earlier answers of the server."""

import pytest

from engine.cli.serve import RECENT_ANSWERS, settings_of
from tests.engine.serve.world import serving

PROMPTS = ("def read_text(path):\n", "import json\n")


def ask(server, prompt, **more):
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": 60,
        "temperature": 0,
        "x_kakeya": {"draft": "lookup"},
    }
    answer = server.http.post("/v1/completions", json={**body, **more}).json()
    return answer["choices"][0]["text"], answer["x_kakeya"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    with (
        serving(tmp_path_factory.mktemp("with"), "--model", "tiny") as with_answers,
        serving(tmp_path_factory.mktemp("without"), "--model", "tiny", "--recent-answers", "0") as without,
    ):
        yield with_answers, without


@pytest.mark.long
@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_that_is_given_again_is_drafted_from_the_first(both, prompt):
    with_answers, without = both
    plain, one = ask(without, prompt)
    assert [ask(with_answers, prompt)[0] for _ in range(2)] == [plain, plain]
    assert ask(with_answers, prompt)[1]["accepted"] > one["accepted"] + 5
    assert ask(without, prompt)[1]["accepted"] == one["accepted"]


@pytest.mark.long
def test_a_seed_gives_the_same_answer_whatever_was_answered_before(both):
    answers = {ask(server, PROMPTS[0], temperature=1, seed=5)[0] for server in both for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("host", "given", "tokens"),
    [
        ("127.0.0.1", None, RECENT_ANSWERS),
        ("::1", None, RECENT_ANSWERS),
        ("0.0.0.0", None, 0),
        ("0.0.0.0", 9, 9),
    ],
)
def test_they_are_kept_by_default_for_this_machine_alone(host, given, tokens):
    settings = settings_of(
        models=("tiny",), api_key="k", backend="mlx", host=host, cache="raw", recent_answers=given
    )
    assert settings.recent_answers == tokens
