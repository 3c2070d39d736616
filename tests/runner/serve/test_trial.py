"""``kakeya-runner try``: a preset of one's own runs as a request for it would, and everything about it is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bridge.verify.public_keys import PublicKey
from tests import programs

pytestmark = pytest.mark.bus
PYTHON = "${ENV:KAKEYA_MAC_PYTHON}"
WRITE = "import os; print('h' + 'i', sorted(os.environ)); open('results/research/x.json', 'w').write('[1]')"


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit and a folder of presets."""
    top = tmp_path / "repo"
    (top / ".kakeya/presets").mkdir(parents=True)
    (top / "work.py").write_text("print('from the ' + 'tree')\n")
    for argv in (
        ["init", "--quiet"], ["config", "user.name", "A"], ["config", "user.email", "a@example.com"],
        ["add", "work.py"], ["commit", "--quiet", "--message", "one"],
    ):  # fmt: skip
        subprocess.run(["git", *argv], cwd=top, check=True)
    return top


def write(repo: Path, name: str = "mine", *, folder: str = ".kakeya/presets", **changes: object) -> None:
    code = str(changes.pop("run", WRITE))
    preset = {
        "name": name, "description": "One of mine.", "code": "installed", "timeout_s": 30,
        "steps": [{"argv": [PYTHON, "-c", code]}], "collect": ["results/research/*.json"], **changes,
    }  # fmt: skip
    (repo / folder).mkdir(parents=True, exist_ok=True)
    (repo / folder / f"{name}.yaml").write_text(yaml.safe_dump(preset))


def attempt(
    repo: Path, *args: str, policy: dict[str, object] | None = None
) -> subprocess.CompletedProcess[str]:
    argv: list[object] = []
    if policy is not None:
        path = repo.parent / "policy.yaml"
        path.write_text(yaml.safe_dump({"schema_version": 1, "bus": {"url": "/nowhere"}, **policy}))
        path.chmod(0o600)
        argv = ["--policy", path]
    env = {**os.environ, "HOME": str(repo.parent), "XDG_CONFIG_HOME": str(repo.parent / "config")}
    env["KAKEYA_PUBLIC_KEY"] = PublicKey(bytes(32)).text  # of other answers: this one is no request's
    return programs.run(*argv, "try", *args, cwd=repo, env=env)


def test_a_preset_of_the_repository_runs_without_a_policy_and_everything_is_shown(repo):
    write(repo)

    done = attempt(repo, "mine")

    assert done.returncode == 0, done.stderr
    assert "there is no policy here" in done.stderr
    assert f"step 0: ['{sys.executable}', '-c'" in done.stdout
    shown = next(line for line in done.stdout.splitlines() if line.startswith("variables: "))
    assert set(shown.split()[1:]) <= {
        name.strip("[],'") for name in done.stdout.split("hi ")[1].split("\n")[0].split()
    }
    assert "\nhi [" in done.stdout
    assert "collected: results/research/x.json, 3 bytes" in done.stdout
    assert "step 0: exit code 0 after " in done.stdout
    assert "succeeded: every step ended with 0" in done.stderr
    assert "next: copy mine.yaml into the `preset_folder` of the policy" in done.stderr
    assert [each.name for each in repo.iterdir() if each.name not in (".git", ".kakeya", "work.py")] == []


ENDS = {
    "a step fails": ({"run": "raise SystemExit(7)"}, 1, "step 0 ended with 7"),
    "it takes too long": ({"run": "import time; time.sleep(60)", "timeout_s": 1}, 124, "was ended after 1 s"),
    "its report is rejected": ({"gate": "reports"}, 5, "the reports do not hold"),
    "a report is missing": ({"gate": "reports", "run": "pass"}, 7, "NO_REPORT"),
    "a setting is missing": ({"steps": [{"argv": ["${ENV:NOWHERE}"]}]}, 4, "needs the setting NOWHERE"),
    "a module is missing": ({"requires": ["no_such_module"]}, 4, "no_such_module"),
}  # fmt: skip


@pytest.mark.rows(2)
@pytest.mark.parametrize(("changes", "code", "reason"), ENDS.values(), ids=ENDS)
def test_it_ends_with_the_exit_code_of_the_job(repo, changes, code, reason):
    write(repo, **changes)

    done = attempt(repo, "mine")

    assert (done.returncode, reason in done.stdout + done.stderr) == (code, True), done.stderr
    assert "next:" not in done.stderr


@pytest.mark.long
def test_for_programs_it_is_one_object(repo):
    write(repo, gate="reports")

    done = attempt(repo, "mine", "--json")

    shown = json.loads(done.stdout)
    assert (done.returncode, shown["exit_code"], shown["state"]) == (5, 5, "gate_rejected")
    assert shown["gate"]["verdict"] == "REJECTED"
    assert shown["steps"][0]["argv"][0] == sys.executable
    assert shown["steps"][0]["log"].startswith("hi ")
    assert "HOME" in shown["variables"]
    assert [(each["path"], each["size"]) for each in shown["collected"]] == [("results/research/x.json", 3)]


@pytest.mark.long
def test_the_code_of_the_repository_runs_although_the_policy_denies_it_to_others(repo):
    write(repo, code="request", run="import runpy; runpy.run_path('work.py')", collect=[])

    done = attempt(repo, "mine", policy={"presets": ["mine"]})

    assert (done.returncode, "from the tree" in done.stdout) == (0, True), done.stderr
    assert "note: requests of others are refused: it runs the requester's own code" in done.stderr


@pytest.mark.long
def test_the_policy_decides_settings_and_limits(repo):
    run = "import os, sys; print(os.environ['MINE'], sys.argv[1]); __import__('time').sleep(60)"
    steps = [{"argv": [PYTHON, "-c", run, "${ENV:WORD}"]}]
    write(repo, folder="other", steps=steps, pass_env=["MINE"], labels=["fast"])
    env = {"MINE": "a-setting", "WORD": "a-word"}

    done = attempt(
        repo,
        "mine",
        "--presets",
        "other",
        policy={"env": env, "limits": {"timeout_s": 2}, "presets": ["noop"]},
    )

    assert done.returncode == 124, done.stderr
    assert "\na-setting a-word\n" in done.stdout
    assert "the policy's `presets` does not include mine" in done.stderr
    assert "this host lacks the labels fast" in done.stderr


MISTAKES = {
    "a misspelt preset": (["mien"], 2, "Did you mean mine?"),
    "a parameter that it has not": (["mine", "-p", "a=1"], 2, "mine has no parameter 'a'"),
    "a folder that is not there": (["mine", "--presets", "nowhere"], 2, "nowhere"),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize(("args", "code", "reason"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_runs_nothing(repo, args, code, reason):
    write(repo)

    done = attempt(repo, *args)

    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
    assert "step 0" not in done.stdout


def test_a_preset_that_others_may_change_is_refused_as_the_runner_refuses_it(repo):
    write(repo)
    (repo / ".kakeya/presets/mine.yaml").chmod(0o666)

    done = attempt(repo, "mine")

    assert done.returncode == 2
    assert "the presets" in done.stderr


@pytest.mark.long
def test_without_a_commit_there_is_no_code_to_run(repo):
    write(repo, code="request", collect=[])
    subprocess.run(["git", "update-ref", "-d", "HEAD"], cwd=repo, check=True)

    done = attempt(repo, "mine")

    assert (done.returncode, "has no commit" in done.stderr) == (2, True), done.stderr


class TestOnTheBus:
    """Presets that stand on the default branch of the repository's remote, and in no file here."""

    @pytest.fixture
    def share(self, repo, tmp_path):
        """Push presets to the default branch of a remote, and remove them here."""
        bus = tmp_path / "bus.git"
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(bus)], check=True)

        def push(remote="origin"):
            for argv in (
                ["remote", "add", remote, f"file://{bus}"], ["add", ".kakeya"],
                ["commit", "--quiet", "--message", "Share"], ["push", "--quiet", remote, "HEAD:main"],
                ["rm", "--quiet", "-r", ".kakeya"], ["commit", "--quiet", "--message", "Remove"],
            ):  # fmt: skip
                subprocess.run(["git", *argv], cwd=repo, check=True)

        return push

    def test_it_is_found_and_its_place_is_said(self, repo, share):
        write(repo)
        share()

        done = attempt(repo, "mine")

        assert done.returncode == 0, done.stderr
        place = ".kakeya/presets on origin/main"
        assert f"mine comes from {place}, and this runner offers it to nobody" in done.stderr
        assert f"next: copy mine.yaml from {place} into the `preset_folder`" in done.stderr
        assert "\nhi [" in done.stdout
        assert not (repo / ".kakeya").exists()

    @pytest.mark.long
    def test_files_here_and_built_in_presets_come_first(self, repo, share):
        write(repo, run="print('on the ' + 'bus')", collect=[])
        write(repo, "noop", run="print('on the ' + 'bus')", collect=[])
        share()
        write(repo, run="print('right ' + 'here')", collect=[])

        assert "right here" in attempt(repo, "mine").stdout
        built_in = attempt(repo, "noop")
        assert "on the bus" not in built_in.stdout
        assert "next: " not in built_in.stderr
        (repo / ".kakeya/presets/mine.yaml").write_text("name: mine")
        assert attempt(repo, "mine").returncode == 2

    @pytest.mark.long
    def test_mistakes_name_what_is_there(self, repo, share):
        write(repo)
        write(repo, "broken", timeout=1)
        share("upstream")

        for args, reason in (
            (["mine"], "there is no preset 'mine'"),
            (["mien", "-R", "upstream"], "Did you mean mine?"),
            (["broken", "-R", "upstream"], "did you mean timeout_s?"),
            (["mine", "-R", "upstream", "-p", "a=1"], "mine has no parameter 'a'"),
            (["mine", "-R", "upstream", "--presets", "."], "there is no preset 'mine'"),
        ):
            done = attempt(repo, *args)
            assert (done.returncode, reason in done.stderr) == (2, True), (args, done.stderr)
        assert attempt(repo, "mine", "-R", "upstream").returncode == 0
