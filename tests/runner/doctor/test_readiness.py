"""`kakeya-runner check`: each problem of a host, with its remedy."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from bridge.bus.wire import State
from bridge.common import install, limits
from bridge.errors import GitError
from bridge.presets import load_presets
from bridge.system.process import Child
from runner.bus import transfer
from runner.cli.looking import next_step
from runner.doctor.presets import allowed_names
from runner.doctor.readiness import examine
from runner.policy import load_policy
from tests import programs
from tests.runner.conftest import run_check

NEEDS_ENGINE = pytest.mark.skipif(
    importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed"
)
MODELS = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}


@pytest.fixture
def check(runners, tmp_path):
    def run(**policy: object) -> dict[str, list[dict[str, object]]]:
        code, report = run_check(runners.policy("one", **policy), tmp_path)
        assert code == (0 if report["ready"] else 1)
        found: dict[str, list[dict[str, object]]] = {}
        for line in report["checks"]:
            found.setdefault(line["name"], []).append(line)
        return found

    return run


def test_a_good_host_is_ready_and_says_what_it_is(check):
    found = check(presets=["noop"])
    assert {"git", "policy", "trust", "state", "host", "versions", "bus", "push", "squatting", "disk", "jobs",
            "interpreter", "preset"} <= set(found)  # fmt: skip
    assert [line for lines in found.values() for line in lines if line["ok"] is False] == []
    assert "cores" in found["host"][0]["message"]
    assert "kakeya_bridge 0." in found["versions"][0]["message"]


def test_every_problem_names_its_remedy(check, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"
    )
    good = tmp_path / "good"
    good.mkdir()
    found = check(
        presets=["noop"],
        interpreter_version="3.2.1",
        trust={"code_request": "allow"},
        env={
            "A_MISSING_MODEL": "/nowhere/model", "A_HOME": "~/models", "A_POINTER": str(model), "A_MODEL": str(good),
            "A_WORD": "word",
        },
    )  # fmt: skip
    settings = {line["message"].partition(":")[0]: line for line in found["setting"]}
    assert set(settings) == {"A_MISSING_MODEL", "A_HOME", "A_POINTER", "A_MODEL"}
    assert settings["A_MODEL"]["ok"] is True
    assert "does not exist" in settings["A_MISSING_MODEL"]["message"]
    assert "Git LFS pointer" in settings["A_POINTER"]["message"]
    assert f"git -C {model} lfs pull" in settings["A_POINTER"]["fix"]
    assert found["interpreter"][0]["ok"] is False
    wrong = [line for lines in found.values() for line in lines if line["ok"] is not True]
    assert len(wrong) >= 5
    assert [line for line in wrong if not line["fix"]] == []


def presets_of(found: dict[str, list[dict[str, object]]]) -> dict[str, dict[str, object]]:
    return {line["message"].partition(":")[0]: line for line in found["preset"]}


@pytest.mark.long
@NEEDS_ENGINE
def test_what_loads_can_run_and_what_is_refused_says_why(check):
    found = check(presets=["k3-native-baseline", "k3-step2-fused", "noop", "pytest-path"], env=MODELS)
    lines = presets_of(found)
    for name in ("k3-native-baseline", "k3-step2-fused", "noop"):
        assert lines[name]["message"] == f"{name}: can run", lines[name]
    assert lines["pytest-path"]["ok"] is None
    assert "trust.code_request is deny" in lines["pytest-path"]["message"]
    assert found["presets"][0]["message"] == "3 can run, 1 are refused by the policy"
    loaded = "KAKEYA_MAC_DRAFTER_ID tiny, KAKEYA_MAC_VERIFIER_PATH tiny: loaded in a job without errors"
    assert found["models"][0]["message"] == loaded


@pytest.mark.long
@NEEDS_ENGINE
def test_a_model_that_was_not_downloaded_says_how_to(check, tmp_path):
    env = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "some-org/some-drafter"}
    found = check(presets=["k3-native-baseline", "k3-step2-fused"], env={**env, "HF_HOME": str(tmp_path)})
    lines = presets_of(found)
    # The target alone is enough for the one, and the other lacks its drafter.
    assert lines["k3-native-baseline"]["ok"] is True
    assert lines["k3-step2-fused"]["ok"] is None
    assert "KAKEYA_MAC_DRAFTER_ID names some-org/some-drafter" in lines["k3-step2-fused"]["message"]
    assert lines["k3-step2-fused"]["fix"] == f"HF_HOME={tmp_path} hf download some-org/some-drafter"


@pytest.mark.long
@NEEDS_ENGINE
def test_files_that_are_there_and_do_not_load_are_noticed(check, tmp_path):
    import engine.models.registry  # noqa: PLC0415 - where the bundled weights lie

    broken = tmp_path / "broken"
    shutil.copytree(Path(engine.models.registry.DATA) / "tiny" / "target", broken)
    (broken / "tokenizer.json").write_text('{"model": 1}')
    found = check(presets=["k3-native-baseline"], env={"KAKEYA_MAC_VERIFIER_PATH": str(broken)})
    line = presets_of(found)["k3-native-baseline"]
    assert line["ok"] is None
    assert f"KAKEYA_MAC_VERIFIER_PATH names {broken}, which cannot be loaded" in line["message"]
    assert found["presets"][0]["ok"] is False


@pytest.mark.long
def test_presets_that_do_not_exist_and_files_that_cannot_be_used_are_noticed(check, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "bad.yaml").write_text("name: [")
    (folder / "other.yaml").write_text("name: [")
    lines = check(presets=["noop", "nop", "bad", "zz-*"], preset_folder=str(folder))["preset"]
    said = {line["message"]: line for line in lines}
    assert said["the policy names nop, but there is no such preset"]["fix"] == "Did you mean noop?"
    assert said["the policy names nop, but there is no such preset"]["ok"] is False, "it is ready"
    where = f"Put its file into {folder}: what is in .kakeya/presets on the bus tells requesters, and does not run."
    assert said["the policy names zz-*, but there is no such preset"]["fix"] == where
    assert said["the policy names zz-*, but there is no such preset"]["ok"] is None, "a preset may follow"
    states = {message[:5]: line["ok"] for message, line in said.items() if ": invalid: " in message}
    assert states == {"bad: ": False, "other": None}, "only a preset that this host promises counts"
    assert any(message.startswith("bad: invalid: ") and "bad.yaml" in message for message in said)
    assert said["noop: can run"]["ok"] is True


@pytest.mark.long
def test_without_a_policy_the_command_that_writes_one_is_one_that_works(tmp_path, bus):
    path = tmp_path / "p.yaml"

    said = programs.run("--policy", path, "check").stdout
    command = said.partition("Write one: kakeya-runner ")[2].splitlines()[0].replace("URL", str(bus)).split()
    done = programs.run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert path.exists()
    assert "pytest-path: it runs the requester's own code, and trust.code_request is deny" in done.stderr
    assert "noop" not in done.stderr


@pytest.mark.long
def test_a_host_that_is_served_already_is_not_told_to_serve(runners):
    runner = runners.start(presets=["noop"])
    done = programs.run("--policy", runner.policy, "check")
    assert done.returncode == 0, done.stdout
    assert "noop: can run" in done.stdout
    assert done.stderr.strip() == "ready: a runner is serving"
    assert next_step([]) == "kakeya-runner serve"


@pytest.mark.long
@NEEDS_ENGINE
def test_a_request_whose_model_is_not_there_is_refused_and_says_where_to_act(host, requester, presets, ran):
    presets(
        loads={
            "requires": ["mlx_lm"],
            "steps": [{"argv": ["/usr/bin/touch", str(ran), "${ENV:KAKEYA_MAC_VERIFIER_PATH}"]}],
        }
    )
    branch = requester.send(requester.manifest("loads"))
    result = host.answer(branch, env={"KAKEYA_MAC_VERIFIER_PATH": "some-org/some-model"})
    assert (result.state, result.reason.code) == (State.REFUSED, "models")
    assert "is not downloaded" in result.reason.message
    assert (
        "The operator of the runner one can fix it there: hf download some-org/some-model"
        in result.reason.message
    )
    assert not ran.exists()


def test_an_interpreter_without_the_engine_is_said_to_lack_it(host, requester, presets, ran, tmp_path):
    import venv  # noqa: PLC0415 - used here alone

    venv.create(tmp_path / "bare", symlinks=True)
    presets(probe={"steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", "-P", "-m", "engine", "probe"]}]})
    branch = requester.send(requester.manifest("probe"))
    result = host.answer(branch, interpreter=str(tmp_path / "bare" / "bin" / "python"))
    assert (result.state, result.reason.code) == (State.REFUSED, "interpreter")
    assert "cannot import engine" in result.reason.message
    assert install.engine(python=tmp_path / "bare" / "bin" / "python") in result.reason.message


def test_serving_names_the_presets_that_are_not_refused(runners):
    policy = load_policy(
        runners.policy("one", presets=["noop", "pytest-path"], trust={"code_request": "deny"})
    )
    assert allowed_names(load_presets(), policy) == ["noop"]


@pytest.mark.long
@pytest.mark.bus
def test_a_slow_first_contact_counts_all_branches_and_advises_to_delete_none(host, requester, monkeypatch):
    branches = [requester.send(requester.manifest()) for _ in range(3)]
    argv = ("/bin/sleep", "60")
    monkeypatch.setattr(limits, "FETCH_S", 0.1)
    monkeypatch.setattr(
        transfer, "start_fetch", lambda *_, **__: Child(argv, env={}, own_session=True, error=GitError)
    )
    checks = list(examine(host.policy("one", presets=["touch"])))
    told = {check.name: check for check in checks}
    assert told["bus"].message.endswith("reached, 3 request branches")
    assert (told["branches"].ok, "3 of the 3" in told["branches"].message) == (None, True)
    assert [
        check for check in checks if any(branch in f"{check.message}{check.fix}" for branch in branches)
    ] == []


def test_a_program_that_is_not_there_or_that_the_sandbox_hides_is_named(check, presets, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print(1)\n")
    python = "${ENV:KAKEYA_MAC_PYTHON}"
    folder = presets(
        absent={"steps": [{"argv": ["/nowhere/program"]}]},
        hidden={"steps": [{"argv": [python, str(script)]}]},
        shown={"steps": [{"argv": [python, "${ENV:MY_SCRIPT}"]}]},
        plain={"steps": [{"argv": ["/bin/echo", "x"]}]},
    )
    names = ["absent", "hidden", "shown", "plain"]
    found = check(presets=names, preset_folder=str(folder), env={"MY_SCRIPT": str(script)})

    told = {name: about["message"] for name, about in presets_of(found).items()}
    assert told["absent"] == "absent: /nowhere/program does not exist here"
    assert told["shown"] == "shown: can run"
    assert told["plain"] == "plain: can run"
    if not any("NOT confined" in about["message"] for about in found["sandbox"]):
        assert told["hidden"] == f"hidden: the sandbox hides {script}"
