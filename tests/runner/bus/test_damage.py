"""A store that a power cut or a bad disk damaged: it is made anew, and answers that wait survive."""

from __future__ import annotations

import os
import signal

import pytest

from bridge.bus.wire import State
from bridge.client import Client
from bridge.system.git import Git
from runner.bus.damage import damage
from runner.serve.compose import Composer

pytestmark = pytest.mark.bus


def objects_of(store):
    """Return the loose objects, the last ones first."""
    loose = [path for path in store.glob("objects/??/*") if len(path.parent.name) == 2]
    return sorted(loose, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def overwrite(path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def cut_pack(store) -> None:
    Git.isolated(store)("repack", "-a", "-d", "--quiet")
    (pack,) = store.glob("objects/pack/*.pack")
    overwrite(pack, pack.read_bytes()[:-200])


DAMAGE = {
    "the last objects are empty": lambda store: [overwrite(path, b"") for path in objects_of(store)[:5]],
    "the last objects are zeros": lambda store: [
        overwrite(path, bytes(99)) for path in objects_of(store)[:5]
    ],
    "an object is gone": lambda store: [path.unlink() for path in objects_of(store)[:3]],
    "a pack is cut": cut_pack,
    "packed-refs is zeros": lambda store: overwrite(store / "packed-refs", bytes(300)),
    "packed-refs is empty": lambda store: overwrite(store / "packed-refs", b""),
    "HEAD is zeros": lambda store: overwrite(store / "HEAD", bytes(20)),
    "HEAD is gone": lambda store: (store / "HEAD").unlink(),
    "config is zeros": lambda store: overwrite(store / "config", bytes(60)),
    "config is empty": lambda store: overwrite(store / "config", b""),
}


@pytest.mark.long
@pytest.mark.rows(4)
@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE)
def test_a_runner_serves_again_after_its_store_was_damaged(host, requester, ran, harm):
    first = requester.send(requester.manifest())
    assert host.answer(first).state is State.SUCCEEDED
    with host.context() as context:
        store = context.bus.git.directory
    harm(store)

    second = requester.send(requester.manifest())
    assert host.answer(second).state is State.SUCCEEDED
    assert host.result(first).state is State.SUCCEEDED
    assert damage(store, quick=False) == ""


def test_a_whole_store_is_left_as_it_is(host, requester):
    branch = requester.send(requester.manifest())
    host.handle()
    with host.context() as context:
        assert damage(context.bus.git.directory) == ""
    assert host.result(branch).state is State.SUCCEEDED
    assert not any("damaged" in line for line in host.told)


@pytest.fixture
def waiting(host, requester, bus):
    """A request whose answer could not be pushed, and the store that has it; the bus is back."""
    branch = requester.send(requester.manifest())
    with host.context(bus={"lease_s": 1}) as context:
        poller = Composer(context).poller()
        hook = bus / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        # The bus takes the claim, and nothing after it.
        hook.write_text('#!/bin/sh\ncase "$(git log -1 --format=%s "$3")" in *results*) exit 1;; esac\n')
        hook.chmod(0o755)
        poller.poll()
        (pending,) = context.ledger.unsent_answers()
        store = context.bus.git.directory
    hook.unlink()
    return branch, pending.answer, store


def test_an_answer_that_waits_survives_a_damaged_store(host, waiting, ran):
    branch, _, store = waiting
    ran.unlink()
    for name in ("HEAD", "packed-refs"):
        overwrite(store / name, bytes(64))

    assert host.answer(branch).state is State.SUCCEEDED
    assert not ran.exists()
    assert any("the answer that was waiting is published" in line for line in host.told)


@pytest.mark.long
@pytest.mark.parametrize("part", ["commit", "file"])
def test_a_damaged_answer_is_dropped_and_the_job_runs_again(host, waiting, ran, git, wait_for, part):
    branch, answer, store = waiting
    ran.unlink()
    oid = answer if part == "commit" else git(store, "rev-parse", f"{answer}:.mac-bridge/result.json")
    overwrite(store / "objects" / oid[:2] / oid[2:], b"")

    with host.context(bus={"lease_s": 1}) as context:
        poller = Composer(context).poller()
        wait_for(lambda: poller.poll() and host.result(branch))
    assert host.result(branch).state is State.SUCCEEDED
    assert ran.exists()


@pytest.mark.long
@pytest.mark.parametrize("moment", ["after a crash in a job", "while it serves"])
def test_a_live_runner_mends_its_store(runners, client, presets, wait_for, tmp_path, moment):
    go, count = tmp_path / "go", tmp_path / "count"
    script = f"echo ran >> {count}; while [ ! -e {go} ]; do sleep 0.05; done"
    folder = presets(wait={"steps": [{"argv": ["/bin/sh", "-c", script]}]})
    runner = runners.start(preset_folder=str(folder))
    store = runners.folder / "state-one" / "store.git"
    if moment == "while it serves":
        go.touch()
        assert client.run("noop").wait(timeout=60).state is State.SUCCEEDED
        overwrite(store / "packed-refs", bytes(300))
    else:
        branch = Client(client.git.directory, presets=folder).run("wait").branch
        wait_for(count.exists)
        runner.stop(signal.SIGKILL)
        for path in objects_of(store)[:5]:
            overwrite(path, b"")
        go.touch()
        runner = runners.start(preset_folder=str(folder))
        assert client.wait(branch, timeout=60).state is State.SUCCEEDED

    assert client.run("noop").wait(timeout=60).state is State.SUCCEEDED
    assert "the store is damaged" in runner.said()


@pytest.mark.long
def test_a_live_runner_gets_over_a_lock_that_a_killed_git_left(runners, client, wait_for):
    runner = runners.start()
    assert client.run("noop").wait(timeout=60).state is State.SUCCEEDED
    lock = runners.folder / "state-one" / "store.git" / "packed-refs.lock"
    lock.touch()
    os.utime(lock, (0, 0))

    assert client.run("noop").wait(timeout=60).state is State.SUCCEEDED
    assert f"a git that was killed left the lock {lock}" in runner.said()
    assert not lock.exists()
