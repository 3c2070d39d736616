"""The runner killed with SIGKILL before each of its steps in turn, from its start to the end of a request.

After each kill another runner goes on with the same state folder: the request is answered, once, and a job whose
answer was noted does not run again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bridge.bus import history
from bridge.bus.wire import State
from bridge.system.git import Git
from runner.state.ledger import Ledger

RUNNER = Path(__file__).with_name("dies_at.py")
MOST_STEPS = 200


@pytest.fixture
def counted(presets, tmp_path):
    """A preset that counts its executions by request, and the file with a line for each."""
    ran = tmp_path / "counted"
    ran.touch()
    step = ["/bin/sh", "-c", f'echo "$1" >> {ran}', "count", "{n}"]
    params = {"n": {"type": "int", "min": 1, "max": MOST_STEPS}}
    return presets(count={"params": params, "steps": [{"argv": step}]}), ran


def has_noted_an_answer(state: Path) -> bool:
    ledger = Ledger(state / "ledger.sqlite")
    try:
        return bool(ledger.unsent_answers())
    finally:
        ledger.close()


@pytest.fixture
def mortals():
    """Return a function that starts what makes runners, which is a function that runs one until it dies."""
    with ExitStack() as stack:

        def start(policy: Path, noted: Path, said: Path):
            argv = [sys.executable, "-P", str(RUNNER), str(policy), str(noted)]
            log = stack.enter_context(said.open("wb"))
            maker = stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            )
            stack.callback(maker.kill)

            def run(n: int) -> int:
                maker.stdin.write(f"{n}\n")
                maker.stdin.flush()
                return int(maker.stdout.readline())

            return run

        yield start


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kill_before_any_step_loses_nothing_and_runs_nothing_twice(
    host, runners, requester, counted, mortals, bus, tmp_path
):
    folder, ran = counted
    settings = {"preset_folder": str(folder)}
    noted, said = tmp_path / "steps", tmp_path / "said"
    mortal = mortals(runners.policy("one", **settings), noted, said)
    state, git = runners.folder / "state-one", Git.isolated(bus)
    host.handle(**settings)
    died = []
    for n in range(1, MOST_STEPS):
        name = requester.send(requester.manifest("count", params={"n": n}))
        ended = mortal(n)
        executed = [int(line) for line in ran.read_text().splitlines()].count(n)
        answer_noted = has_noted_an_answer(state)
        if ended == 0:
            assert executed == 1
            break
        assert ended == -signal.SIGKILL, said.read_text()
        died.append(noted.read_text().splitlines()[-1])

        host.handle(**settings)

        where = f"killed before step {n}, {died[-1]}"
        tip = git.text("rev-parse", f"refs/heads/{name}")
        branch = history.read_branch(git, name, tip)
        states = [one.state for _, one, _ in history.streamed_states(git, branch.request, tip)]
        assert branch.current_state is State.SUCCEEDED, where
        assert [one for one in states if one.is_final] == [State.SUCCEEDED], where
        total = [int(line) for line in ran.read_text().splitlines()].count(n)
        assert total <= states.count(State.CLAIMED), where
        if answer_noted or not executed:
            assert total == 1, where
        assert not has_noted_an_answer(state), where
        assert not [*(state / "store.git").rglob("*.lock")], where
    else:
        pytest.fail("the request was never answered")
    print(f"{len(died)} kills; steps: {died}")
    assert {"git push", "git push, under way", "ledger", "replace packed-refs"} <= {*died}
