"""The workflows: what starts them, what they may do, and that nothing of a pushed tree decides anything."""

import re
from pathlib import Path

import pytest
import yaml

from bridge.bus.branch_names import DEFAULT_PATTERNS

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def load(path):
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the bare word `on` as a boolean.
    workflow["on"] = workflow.pop(True)
    return workflow


def steps_of(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.fixture(scope="module")
def bridge():
    return load(ROOT / ".github" / "workflows" / "mac-bridge.yaml")


@pytest.fixture(scope="module")
def job(bridge):
    (job,) = bridge["jobs"].values()
    return job


def test_there_are_workflows():
    assert [path.name for path in WORKFLOWS] == [
        "ci.yaml",
        "mac-bridge.yaml",
        "release.yaml",
        "versions.yaml",
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_is_granted_to_all_jobs(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert all("permissions" in job and job["timeout-minutes"] <= 150 for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_and_says_its_version(path):
    used = [step["uses"] for step in steps_of(load(path)) if "uses" in step]
    assert [action for action in used if not PINNED.fullmatch(action)] == []
    commented = re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", path.read_text(), re.MULTILINE)
    assert len(commented) == len(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_leaves_a_token_in_the_workspace(path):
    for step in steps_of(load(path)):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_script(path):
    assert [step["run"] for step in steps_of(load(path)) if "${{" in step.get("run", "")] == []


def test_bridge_starts_on_the_branches_that_the_code_accepts(bridge):
    assert list(bridge["on"]) == ["push"]
    assert list(bridge["on"]["push"]) == ["branches"]
    # In a workflow `*` stops at a slash and `**` does not; in the code `*` stands for anything.
    globs = [pattern.replace("**", "*") for pattern in bridge["on"]["push"]["branches"]]
    assert globs == list(DEFAULT_PATTERNS)


def test_bridge_only_calls_the_installed_runner(job):
    step, keep = job["steps"]
    assert "uses" not in step
    call = 'exec kakeya-runner once --branch "$BRANCH" --commit "$COMMIT" --results "$RUNNER_TEMP/kakeya-results"'
    assert step["run"] == call
    assert step["env"] == {
        "BRANCH": "${{ github.ref_name }}",
        "COMMIT": "${{ github.sha }}",
        "KAKEYA_BUS_TOKEN": "${{ github.token }}",
        "KAKEYA_MAC_VERIFIER_PATH": "${{ vars.KAKEYA_MAC_VERIFIER_PATH }}",
        "KAKEYA_MAC_DRAFTER_ID": "${{ vars.KAKEYA_MAC_DRAFTER_ID }}",
        "KAKEYA_MAC_FTHETA_DIR": "${{ vars.KAKEYA_MAC_FTHETA_DIR }}",
    }
    # The one action that is used reads what the runner wrote, and gets no token.
    assert keep["uses"].startswith("actions/upload-artifact@")
    assert keep["with"]["path"] == "${{ runner.temp }}/kakeya-results"
    assert "env" not in keep
    assert step["working-directory"] == "/"


def test_bridge_shell_reads_no_profile(job):
    step, _ = job["steps"]
    shell = step["shell"].split()
    assert shell[0] == "/bin/bash"
    # -p is what keeps BASH_ENV and functions from the environment out.
    assert {"--noprofile", "--norc", "-p"} <= set(shell)


def test_bridge_may_push_and_nothing_else(job):
    assert job["permissions"] == {"contents": "write"}
    assert job["runs-on"] == ["self-hosted", "macOS", "ARM64", "kakeya-mac-m4"]


def test_bridge_drops_no_request(bridge):
    assert bridge["concurrency"] == {"group": "mac-bridge-${{ github.ref }}", "cancel-in-progress": False}


def test_bridge_does_not_answer_itself_or_a_deletion(job):
    assert "[skip ci]" in job["if"]
    assert "!github.event.deleted" in job["if"]
