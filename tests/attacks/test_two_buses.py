"""Two buses whose runners share a key: what a copy of signed states and answers from one to the other can do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.bus import objects, wire
from bridge.checklist import SIGNATURE
from bridge.client import Client
from bridge.system.git import Git

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@dataclass
class Buses:
    """The bus on which the requester asks, with the runner `two`, and another one with the runner `one`."""

    here: Path
    other: Path
    client: Client
    keyed: object

    def copy(self, branch: str, *, to_here: bool) -> None:
        """Copy a branch from one bus to the other, as anybody who may push to both can."""
        source, target = (self.other, self.here) if to_here else (self.here, self.other)
        Git.isolated(target)("fetch", "--quiet", str(source), f"+refs/heads/{branch}:refs/heads/{branch}")

    def handle(self, name: str) -> None:
        """Let the runner `one` or `two` handle what is on its bus."""
        bus = {"url": str(self.here if name == "two" else self.other)}
        self.keyed.handle(name, signed=False, bus=bus, trust={"runners": [str(self.keyed.key())]})

    def result(self, branch: str) -> wire.Result:
        return wire.parse_result(
            objects.read_blob(Git.isolated(self.here), f"refs/heads/{branch}", wire.RESULT, max_bytes=1 << 20)
        )

    def failed(self, branch: str) -> set[str]:
        """Verify what is on this bus now, and return which checks fail."""
        self.client.view(branch)
        return {check.name for check in self.client.verify(branch).checks if check.ok is False}


@pytest.fixture
def buses(bus, clone, keyed, git, tmp_path) -> Buses:
    other = tmp_path / "other.git"
    shutil.copytree(bus, other)
    git(clone, "config", "kakeya.publicKey", str(keyed.key("one")))
    shutil.copytree(keyed.runners.folder / "state-one", keyed.runners.folder / "state-two")
    return Buses(bus, other, Client(clone), keyed)


def test_row_88_an_answer_to_another_commit_of_the_same_name_answers_nothing_here(buses):
    run = buses.client.run("noop")
    # On the other bus, somebody asks for the same under the same name and nonce, in a commit of their own.
    there = Git.isolated(buses.other)
    buses.copy(run.branch, to_here=False)
    theirs = objects.commit(there, f"{run.commit}^{{tree}}", [f"{run.commit}^"], "the same\n", STRANGER)
    there("update-ref", f"refs/heads/{run.branch}", theirs)
    buses.handle("one")
    here = Git.isolated(buses.here)

    # The whole branch in the place of the request: the requester's own record tells it from what was sent.
    buses.copy(run.branch, to_here=True)
    assert "sent" in buses.failed(run.branch)

    # The signed answer, put on top of the request: no state for the runner, no answer for the requester.
    answer = here.text("rev-parse", f"refs/heads/{run.branch}")
    message = here.text("log", "-1", "--format=%B", answer) + "\n"
    assert "Kakeya-Signature: " in message
    grafted = objects.commit(here, f"{answer}^{{tree}}", [run.commit], message, STRANGER)
    here("update-ref", f"refs/heads/{run.branch}", grafted)
    assert SIGNATURE in buses.failed(run.branch)
    buses.handle("two")
    assert buses.result(run.branch).runner.id == "two"
    assert buses.failed(run.branch) == set()


def test_row_88_an_answer_to_the_very_same_commit_counts_and_says_who_gave_it(buses):
    """Documented, not prevented: a state names a branch and commits, but no bus."""
    run = buses.client.run("noop")
    buses.copy(run.branch, to_here=False)
    buses.handle("one")
    buses.copy(run.branch, to_here=True)
    tip = Git.isolated(buses.here).text("rev-parse", f"refs/heads/{run.branch}")

    assert buses.failed(run.branch) == set()
    assert buses.client.status(run.branch).runner == "one"
    buses.handle("two")
    assert Git.isolated(buses.here).text("rev-parse", f"refs/heads/{run.branch}") == tip
