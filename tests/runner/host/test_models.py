"""What presets need of models, how the engine is asked about them, and how its answer is read."""

from __future__ import annotations

import json
import sys

import pytest

from bridge.presets import load_presets
from runner.host.models import DRAFTER, TARGET, Need, need_of, read_answer
from runner.policy import load_policy

BOTH = Need({TARGET: "tiny", DRAFTER: "org/none"}, {})
GOOD = {"ok": True, "error": None, "fix": None}
MISSING = {"ok": False, "error": "it is not downloaded", "fix": "hf download org/none"}


def said(**parts: object) -> str:
    return f"a warning\n{json.dumps({'ok': False, **parts})}\n"


@pytest.fixture
def need(presets, runners):
    """What a preset that uses these settings needs under a policy with this `env`."""

    def of(uses: list[str], env: dict[str, str], **preset: object) -> Need | None:
        argv = ["/bin/true", *(f"${{ENV:{name}}}" for name in uses)]
        folder = presets(mine={"steps": [{"argv": argv}], "requires": ["mlx_lm"], **preset})
        return need_of(load_presets(folder)["mine"], load_policy(runners.policy("one", env=env)))

    return of


def test_a_preset_needs_the_models_that_it_uses_and_the_policy_names(need):
    env = {TARGET: "tiny", DRAFTER: "other", "HF_HOME": "/hub"}
    assert need([TARGET, DRAFTER], env) == Need({TARGET: "tiny", DRAFTER: "other"}, {})
    assert need([TARGET], env, pass_env=["HF_HOME"]) == Need({TARGET: "tiny"}, {"HF_HOME": "/hub"})
    assert need([], env, pass_env=[TARGET]) == Need({TARGET: "tiny"}, {})
    assert need([TARGET, DRAFTER], {DRAFTER: "other"}) is None
    assert need([], env) is None
    assert need([TARGET], env, requires=["json"]) is None


def test_the_engine_is_asked_for_these_models_and_no_other():
    ask = [sys.executable, "-P", "-m", "engine", "models", "--check", "tiny"]
    assert BOTH.command(sys.executable, files=True) == [*ask, "--draft", "org/none", "--files", "--json"]
    alone = Need({TARGET: "tiny"}, {})
    assert alone.command(sys.executable, files=False) == [*ask, "--no-draft", "--json"]


def test_an_answer_says_which_setting_is_wrong():
    assert read_answer(said(target=GOOD, draft=GOOD), BOTH) == {}
    problems = read_answer(said(target=GOOD, draft=MISSING), BOTH)
    assert list(problems) == [DRAFTER]
    assert (
        problems[DRAFTER].message == f"{DRAFTER} names org/none, which cannot be loaded: it is not downloaded"
    )
    assert problems[DRAFTER].fix.startswith("hf download org/none, and set HF_HOME under env in the policy")
    assert list(read_answer(said(target=MISSING, draft=MISSING), BOTH)) == [TARGET, DRAFTER]


def test_a_model_without_a_fix_can_still_be_replaced():
    problems = read_answer(said(target={**MISSING, "fix": None}, draft=GOOD), BOTH)
    assert problems[TARGET].fix == f"Name another model under env.{TARGET} in the policy."


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Error: no such command\n",
        '{"ok": tru\n',
        said(),
        said(target=GOOD, draft=None),
        said(target=GOOD, draft="good"),
        said(target=GOOD, draft={}),
    ],
)
def test_what_is_no_answer_is_told_apart_from_a_good_one(answer):
    assert read_answer(answer, BOTH) is None
