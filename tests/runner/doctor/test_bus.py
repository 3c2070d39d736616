"""What the host of a bus must allow: `kakeya-runner check` tries it with a real push, and leaves nothing behind."""

from __future__ import annotations

import os

import pytest

from tests.runner.conftest import run_check

pytestmark = pytest.mark.bus


@pytest.fixture
def check(runners, bus):
    """Run the check with a preset that needs nothing, and return its lines by name."""

    def run(**policy: object) -> dict[str, dict[str, object]]:
        _, report = run_check(runners.policy("one", presets=["noop"], **policy))
        return {line["name"]: line for line in report["checks"]}

    return run


def hook(bus, name, script):
    file = bus / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def branches(bus, git):
    return git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()


def test_a_scratch_branch_is_pushed_and_deleted(check, bus, git, tmp_path):
    seen = tmp_path / "seen"
    hook(bus, "update", f'echo "$1" >> {seen}')
    found = check(bus={"url": str(bus), "patterns": ["team/mac-bridge-*"]})

    assert found["push"]["ok"] is found["deletion"]["ok"] is True
    pushed, deleted = seen.read_text().splitlines()
    assert pushed == deleted
    assert pushed.startswith("refs/heads/team/mac-bridge-check-")
    assert branches(bus, git) == ["main"]


RULES = {
    "GitLab: Commit must be signed with a GPG key": "exempt mac-bridge/* from this rule",
    "Committer's email 'x' does not follow the pattern 'y'": "exempt mac-bridge/*",
    "error: GH006: Protected branch update failed": "let this account write to mac-bridge/*",
    "You are not allowed to push code to this project.": "the right to push",
    "closed today": "rules and hooks",
}


@pytest.mark.long
@pytest.mark.parametrize("said", RULES)
def test_a_rule_of_the_host_is_found_before_a_job_runs(check, bus, git, said):
    hook(bus, "pre-receive", f'echo "{said}" >&2; exit 1')
    found = check()

    assert found["push"]["ok"] is False
    assert said in found["push"]["message"]
    assert RULES[said] in found["push"]["fix"]
    assert "--prefix" not in found["push"]["fix"]
    assert branches(bus, git) == ["main"]


@pytest.mark.long
def test_a_host_that_keeps_branches_is_named(check, bus, git):
    git(bus, "config", "receive.denyDeletes", "true")
    found = check()

    assert found["push"]["ok"] is True
    assert found["deletion"]["ok"] is None
    assert "deletion prohibited" in found["deletion"]["message"]
    assert "deletion of request branches" in found["deletion"]["fix"]


@pytest.mark.long
def test_a_bus_of_another_user_gets_advice_that_helps_a_runner(check, bus):
    if os.geteuid() != 0:
        pytest.skip("only root can give the folder away")
    for path in (bus, *bus.rglob("*")):
        os.chown(path, 12345, 12345)
    found = check()

    assert "dubious ownership" in found["bus"]["message"]
    assert "git config" not in found["bus"]["message"]
    assert "has no effect on a runner" in found["bus"]["fix"]
