"""A workflow's variables choose among the models that the host allows, and nothing else."""

from __future__ import annotations

import json

import pytest

from bridge.bus import wire
from bridge.client import Client
from bridge.errors import PolicyError
from runner.cli import cli
from runner.context import open_runner
from runner.host.models import DRAFTER, RESTORER, TARGET, with_workflow_models
from runner.policy import load_policy
from runner.serve.loop import keep_results

pytestmark = pytest.mark.bus

SHOW = [
    "/bin/sh",
    "-c",
    'mkdir -p results/research && printf "%s %s" "$1" "$2" > results/research/models.txt',
    "x",
]


@pytest.fixture
def models(tmp_path):
    """A folder of models, and one beside it."""
    for name in ("models/target", "models/draft", "others/secret"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "models"


@pytest.fixture
def policy_of(runners, models):
    """Read a policy whose own models are `tiny`; `allowed` are the folders that a workflow may choose from."""

    def read(*allowed, actions=True):
        rules = {
            "repository": "team/bus",
            "workflows": [".github/workflows/mac-bridge.yaml@refs/heads/mac-bridge/*"],
            "models": [str(a) for a in allowed],
        }
        more = {"actions": rules} if actions else {}
        return load_policy(runners.policy(env={TARGET: "tiny", DRAFTER: "tiny"}, **more))

    return read


def test_without_a_variable_the_policys_own_models_count(policy_of, models):
    policy = policy_of(models)

    assert with_workflow_models(policy, print) is policy


def test_a_variable_comes_before_the_policys_own(policy_of, models, monkeypatch):
    monkeypatch.setenv(TARGET, str(models / "target"))
    told = []

    policy = with_workflow_models(policy_of(models), told.append)

    assert policy.settings[TARGET] == str((models / "target").resolve())
    assert policy.settings[DRAFTER] == "tiny"
    assert told == [f"{TARGET} is {(models / 'target').resolve()}, as the workflow's variable says"]


@pytest.mark.parametrize(
    "value",
    [
        "{0}/../others/secret",
        "{0}/missing",
        "{0}/link",
        "target",
        "~/models",
        "/",
        "org/model",
        "{0}\n/target",
    ],
)
@pytest.mark.parametrize("name", [TARGET, DRAFTER])
def test_what_does_not_lead_below_an_allowed_folder_is_refused(policy_of, models, monkeypatch, name, value):
    (models / "link").symlink_to(models.parent / "others" / "secret")
    monkeypatch.setenv(name, value.format(models))

    with pytest.raises(PolicyError, match="policy's actions") as caught:
        with_workflow_models(policy_of(models), print)

    assert caught.value.code == "model_not_allowed"


@pytest.mark.parametrize("actions", [True, False], ids=["none listed", "no section"])
def test_a_host_that_allows_nothing_refuses_every_variable(policy_of, models, monkeypatch, actions):
    monkeypatch.setenv(TARGET, str(models / "target"))

    with pytest.raises(PolicyError, match="allows no folder"):
        with_workflow_models(policy_of(actions=actions), print)


def test_relative_folders_are_no_policy(policy_of):
    with pytest.raises(PolicyError, match="must be an absolute path"):
        policy_of("models")


@pytest.fixture
def once(clone, runners, presets, models, bus):
    """Handle a request as the workflow does, and return the exit code and the answer's folder."""
    tokens = ["${ENV:" + TARGET + "}", "${ENV:" + DRAFTER + "}"]
    folder = presets(models={"steps": [{"argv": [*SHOW, *tokens]}], "collect": ["results/research/models.txt"],
                             "gate": "none"})  # fmt: skip
    client = Client(clone, presets=folder)

    def handle(out):
        policy = runners.policy(
            preset_folder=str(folder),
            env={TARGET: "tiny", DRAFTER: "tiny"},
            actions={
                "repository": "team/bus",
                "workflows": [".github/workflows/mac-bridge.yaml@refs/heads/mac-bridge/*"],
                "models": [str(models)],
            },
        )
        run = client.run("models")
        args = [
            "--policy",
            str(policy),
            "once",
            "--branch",
            run.branch,
            "--commit",
            run.commit,
            "--results",
            str(out),
        ]
        return cli.main(args, standalone_mode=False), run

    return handle


def test_a_job_gets_the_models_and_its_results_are_kept(once, models, monkeypatch, tmp_path):
    monkeypatch.setenv(TARGET, str(models / "target"))

    code, run = once(tmp_path / "kept")

    assert code == 0
    text = (tmp_path / "kept" / "results" / "research" / "models.txt").read_text()
    assert text == f"{(models / 'target').resolve()} tiny"
    result = json.loads((tmp_path / "kept" / wire.RESULT).read_text())
    assert (result["state"], result["branch"]) == ("succeeded", run.branch)
    assert run.verify().holds


def test_results_that_cannot_be_kept_change_nothing(once, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("mine")

    code, run = once(tmp_path / "kept")

    assert code == 0
    assert "were not written" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]
    assert run.verify().holds


def test_a_request_without_an_answer_leaves_no_results(client, runners, tmp_path):
    run = client.run("noop")
    with open_runner(load_policy(runners.policy()), print) as context:
        keep_results(context, run.branch, tmp_path / "kept")
        keep_results(context, "mac-bridge/noop-1700000000-abcdef", tmp_path / "kept")

    assert not (tmp_path / "kept").exists()


def test_the_restorer_s_variable_comes_before_the_policy_s_and_is_bounded_as_well(
    policy_of, models, monkeypatch
):
    (models / "restorer").mkdir()
    policy = policy_of(models)
    policy = policy.model_copy(update={"env": {**policy.env, RESTORER: "/hosts/own"}})
    assert with_workflow_models(policy, print).settings[RESTORER] == "/hosts/own"
    monkeypatch.setenv(RESTORER, "")
    assert with_workflow_models(policy, print) is policy

    monkeypatch.setenv(RESTORER, str(models / "restorer"))
    chosen = with_workflow_models(policy, print)
    assert chosen.settings[RESTORER] == str((models / "restorer").resolve())
    monkeypatch.setenv(RESTORER, str(models.parent / "others"))
    with pytest.raises(PolicyError, match=f"the workflow's variable {RESTORER}"):
        with_workflow_models(policy, print)
