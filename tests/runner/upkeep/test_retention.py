"""Retention: what is answered goes by age and number, into an archive that a client can verify; nothing else goes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridge.bus import objects, wire
from bridge.bus.branch_names import new_nonce
from bridge.bus.wire import State, StateFile
from bridge.client import Client
from bridge.manifest import format_time
from bridge.system.git import Git
from runner.bus.damage import damage
from runner.policy import Retention, load_policy
from runner.serve.compose import Composer
from runner.state import archive as archives
from runner.state.ledger import Ledger
from runner.upkeep import retention
from tests import programs


def branches(bus):
    listed = Git.isolated(bus).text("for-each-ref", "--format=%(refname)", "refs/heads/mac-bridge/")
    return sorted(ref.removeprefix("refs/heads/") for ref in listed.splitlines())


def note_given(host, branch, days, *, ran=True):
    """Let the runner's ledger know that the runner gave this answer so many days ago."""
    ledger = Ledger(host.bus.parent / "runners" / "state-one" / "ledger.sqlite")
    ledger.note_given(branch, ran=ran, at=time.time() - days * 86_400)
    ledger.close()


@pytest.fixture
def old(requester, host):
    """Put a request on the bus that stands as given, since so many days ago; the runner gave its answer, or nobody."""

    def make(state: State, days: float, within: str = "mac-bridge", *, ran: bool | None = True) -> str:
        manifest = requester.manifest("touch", nonce=new_nonce(time.time() - days * 86_400))
        branch = requester.send(manifest, branch=f"{within}/touch-{manifest['nonce']}")
        tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
        if state is State.REQUESTED:
            return branch
        at = format_time(datetime.now(UTC) - timedelta(days=days))
        said = StateFile(
            schema_version=2, state=state, branch=branch, request=tip, salt=new_nonce(), token=1, sequence=2,
            lease_s=120.0, runner=wire.Runner(id="x", instance="x", version="0"), at=at,
        )  # fmt: skip
        commit = requester.commit({wire.STATE: said.to_bytes()}, tip, base=tip)
        requester.push(commit, branch)
        if ran is not None:
            note_given(host, branch, days, ran=ran)
        return branch

    return make


def test_what_has_no_answer_stays_however_old_it_is(host, old):
    made = [old(state, days=3000) for state in State if not state.is_final]
    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(days=1, keep=1))
    assert swept.deleted == []
    assert (swept.answered, swept.unanswered) == (0, len(made))
    assert branches(host.bus) == sorted(made)


def test_every_answer_goes_when_it_is_old(host, old):
    made = [old(state, days=31) for state in State if state.is_final]
    with host.context() as context:
        assert sorted(Composer(context).sweeper().sweep(Retention(days=30)).deleted) == sorted(made)
    assert branches(host.bus) == []


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ({"days": 30}, [0, 1, 2, 3]),
        ({"days": 5}, [0, 1, 2]),
        ({"keep": 2}, [0, 1]),
        ({"keep": 1}, [0]),
        ({"keep": 100}, [0, 1, 2, 3]),
        ({"keep": 3, "days": 1.5}, [0, 1]),
        ({"keep": 1, "days": 0.01}, [0]),
    ],
)
def test_age_and_number(host, old, rule, left):
    ages = [0.02, 1, 2, 10]
    made = [old(State.SUCCEEDED, days=age) for age in sorted(ages, reverse=True)][::-1]
    with host.context() as context:
        Composer(context).sweeper().sweep(Retention(**rule))
    assert branches(host.bus) == sorted(made[i] for i in left)


def test_names_that_cannot_lie_beside_each_other_do_not_stop_the_archive(host, old, requester):
    """Somebody asks as a branch, and when that is gone below its name, or the other way round."""
    first = old(State.SUCCEEDED, days=31)
    deep = old(State.SUCCEEDED, days=31, within="mac-bridge/touch-1700000000-abcdef")
    with host.context() as context:
        assert set(Composer(context).sweeper().sweep(Retention(days=30)).deleted) == {first, deep}
        requester.git("fetch", "--quiet", "--prune", "origin")
        below = old(State.SUCCEEDED, days=31, within=first)
        tip = requester.git.text("rev-parse", f"refs/remotes/origin/{below}")
        beside = old(State.SUCCEEDED, days=31)
        swept = Composer(context).sweeper().sweep(Retention(days=30))
    assert {below, beside} <= set(swept.deleted)
    archive = Git.isolated(Path(swept.archive))
    assert archive.text("rev-parse", f"refs/apart/{tip}/{below}") == tip
    assert objects.resolve(archive, f"refs/heads/{beside}")
    state = load_policy(host.policy("one")).state
    for path in state.glob("ledger.sqlite*"):
        path.unlink()
    with host.context() as context:
        assert context.ledger.entry(below) is not None


@pytest.mark.long
def test_the_archive_verifies_as_the_bus_did(host, client, clone, runners, tmp_path):
    runners.start(presets=["noop"])
    run = client.run("noop")
    run.wait(60)
    runners.started[0].stop()
    tip = client.view(run.branch).tip
    archive = tmp_path / "kept" / "archive.git"
    with host.context() as context:
        # An hour must have passed since the answer.
        chosen = {run.branch: context.bus.fetch()[run.branch]}
        retention.store(context.bus.git, archive, chosen)
        assert context.bus.delete(chosen) == [run.branch]
    assert branches(host.bus) == []

    reader = Client(clone, str(archive))

    assert reader.view(run.branch).tip == tip
    assert reader.verify(run.branch).holds
    assert (reader.fetch(run.branch, tmp_path / "out").folder / ".mac-bridge" / "result.json").exists()


def test_an_answer_that_just_came_stays_until_it_could_be_read(host, old):
    branch = old(State.SUCCEEDED, days=0)
    old(State.SUCCEEDED, days=0)
    with host.context() as context:
        assert Composer(context).sweeper().sweep(Retention(keep=1, days=0.0001)).deleted == []
    assert branch in branches(host.bus)


def test_a_branch_that_moved_meanwhile_stays(host, old, requester, monkeypatch):
    branch = old(State.SUCCEEDED, days=10)
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    archived = retention.store

    def store_and_push(*args):
        archived(*args)
        requester.push(requester.commit({"new.txt": b"new"}, tip, base=tip), branch)

    monkeypatch.setattr(retention, "store", store_and_push)
    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(days=1))
    assert (swept.deleted, swept.stayed) == ([], [branch])
    assert branches(host.bus) == [branch]


def test_nothing_is_deleted_where_the_archive_fails(host, old, tmp_path):
    branch = old(State.SUCCEEDED, days=10)
    (tmp_path / "a-file").touch()
    with host.context(retention={"days": 1, "archive": str(tmp_path / "a-file" / "archive.git")}) as context:
        context.bus.fetch()  # the times of what it brings confirm the clock
        Composer(context).chores().run_if_due()
    assert any("trying again in an hour" in line for line in host.told)
    assert branches(host.bus) == [branch]


def test_a_bus_that_lets_no_branch_go_is_reported(host, old, git):
    branch = old(State.SUCCEEDED, days=10)
    git(host.bus, "config", "receive.denyDeletes", "true")
    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(days=1))
    assert (swept.deleted, swept.stayed) == ([], [branch])


def test_the_archive_replaces_nothing(host, old, requester):
    branch = old(State.SUCCEEDED, days=10)
    with host.context() as context:
        first = Composer(context).sweeper().sweep(Retention(days=1))
        kept = Git.isolated(context.policy.state / "archive.git")
        tip = objects.resolve(kept, f"refs/heads/{branch}")
        assert first.deleted == [branch]
        again = requester.commit({"other.txt": b"other"}, tip, base=tip)
        requester.push(again, branch)
        context.bus.fetch()

        retention.store(context.bus.git, context.policy.state / "archive.git", {branch: again})

        assert objects.resolve(kept, f"refs/heads/{branch}") == tip
        assert objects.resolve(kept, f"refs/again/{again}") == again


def test_a_deleted_request_that_is_pushed_again_gets_the_answer_that_it_had_and_is_not_run(
    host, requester, ran
):
    branch = requester.send(requester.manifest("touch"))
    tip = requester.git.text("rev-parse", f"refs/remotes/origin/{branch}")
    assert host.answer(branch).state == "succeeded"
    ran.unlink()
    requester.delete(branch)
    requester.push(tip, branch)
    result = host.answer(branch)
    assert (result.state, result.reason.code) == ("succeeded", "ok")
    assert not ran.exists()


def test_the_store_forgets_what_was_deleted_and_keeps_what_waits(host, old):
    gone = old(State.SUCCEEDED, days=10)
    stays = old(State.REQUESTED, days=0)
    with host.context() as context:
        tips = context.bus.fetch()
        git = context.bus.git
        context.ledger.begin(tips[stays], branch=stays)
        context.ledger.record_answer(branch=stays, state="succeeded", answer=tips[stays], expect=tips[stays])
        context.bus.protect(tips[stays])
        context.bus.protect(tips[gone])
        Composer(context).sweeper().sweep(Retention(days=1))
        assert git.text("for-each-ref", "--format=%(refname)", "refs/kept/") == f"refs/kept/{tips[stays]}"
        assert objects.resolve(git, f"refs/bus/{gone}") is None


def test_nothing_is_deleted_as_long_as_nothing_confirms_the_clock(host, old, monkeypatch):
    branch = old(State.SUCCEEDED, days=10)
    with host.context(retention={"days": 1}) as context:
        chores = Composer(context).chores()
        chores.run_if_due()
        assert branches(host.bus) == [branch]

        context.bus.fetch()
        monkeypatch.setattr("runner.host.clock.CONFIRM_S", 0.0)
        chores.run_if_due()
    assert branches(host.bus) == []


def test_serve_sweeps_now_and_then(host, old):
    branch = old(State.SUCCEEDED, days=10)
    with host.context(retention={"days": 1}) as context:
        context.bus.fetch()  # the times of what it brings confirm the clock
        chores = Composer(context).chores()
        chores.run_if_due()
        assert branches(host.bus) == []
        old(State.SUCCEEDED, days=10)
        chores.run_if_due()
        assert len(branches(host.bus)) == 1
    assert any("retention: 1 answers are in" in line for line in host.told)
    assert branch not in branches(host.bus)


def test_a_serving_runner_sweeps_in_portions(host, old, monkeypatch):
    monkeypatch.setattr("runner.upkeep.chores.BATCH_SIZE", 2)
    for days in (30, 20, 10):
        old(State.SUCCEEDED, days=days)
    now = time.monotonic()
    with host.context(retention={"days": 1}) as context:
        context.bus.fetch()  # the times of what it brings confirm the clock
        chores = Composer(context).chores()
        chores.run_if_due()
        assert len(branches(host.bus)) == 1
        chores.run_if_due()
        assert len(branches(host.bus)) == 1
        monkeypatch.setattr("runner.upkeep.chores.time.monotonic", lambda: now + 120)
        chores.run_if_due()

    assert branches(host.bus) == []


@pytest.mark.long
def test_the_command_says_what_would_go_and_then_does_it(host, old, runners, tmp_path):
    branch = old(State.SUCCEEDED, days=10)
    policy = host.policy("one", retention={"days": 1})

    def gc(*args: str) -> subprocess.CompletedProcess[str]:
        return programs.run("--policy", policy, "gc", *args)

    asked = json.loads(gc("--dry-run", "--json").stdout)
    assert (asked["dry_run"], asked["deleted"]) == (True, [branch])
    assert branches(host.bus) == [branch]
    assert gc().stdout == f"{branch}\n"
    assert branches(host.bus) == []
    policy = host.policy("one")
    assert gc().returncode == 2


@pytest.mark.long
def test_a_flood_of_answered_requests_stays_usable(host, flood, requester):
    """Row 22 at a small scale: benchmarks/load.py measures 20,000."""
    flood(30)
    request = requester.send(requester.manifest("touch"))
    with host.context(retention={"keep": 5}) as context:
        context.bus.fetch()  # the times of what it brings confirm the clock
        poller, chores = Composer(context).poller(), Composer(context).chores()
        assert poller.poll()
        chores.run_if_due()
        assert not poller.poll()
    assert host.result(request).state == "succeeded"
    assert len(branches(host.bus)) == 5


@pytest.fixture
def flood(bus, git, host):
    """Put many requests on the bus at once, all of them answered so many days ago."""

    def make(count: int, days: float = 10, state: State = State.SUCCEEDED) -> list[str]:
        made = datetime.now(UTC) - timedelta(days=days)
        began = int(made.timestamp())
        names = [f"mac-bridge/noop-{began + i}-{i:08x}" for i in range(count)]
        stream = []
        for i, branch in enumerate(names):
            said = StateFile(
                schema_version=2, state=state, branch=branch, request="0" * 40, salt=f"{i:016x}", token=1, sequence=2,
                lease_s=120.0, runner=wire.Runner(id="x", instance="x", version="0"), at=format_time(made),
            )  # fmt: skip
            text = said.to_bytes().decode()
            stream.append(
                # Put there today, by a stranger's clock: without it only this machine's would say how old they are.
                f"commit refs/heads/{branch}\ncommitter X <x@x> {int(time.time())} +0000\ndata 0\n"
                f"from refs/heads/main^0\nM 100644 inline {wire.STATE}\ndata {len(text)}\n{text}\n"
            )
        git(bus, "fast-import", "--quiet", "--done", stdin="".join([*stream, "done\n"]))
        git(bus, "pack-refs", "--all")
        ledger = Ledger(host.bus.parent / "runners" / "state-one" / "ledger.sqlite")
        for branch in names:
            ledger.note_given(branch, ran=True, at=made.timestamp())
        ledger.close()
        return names

    return make


@pytest.fixture
def count_transactions(bus):
    """Begin to count the transactions in which the bus changes branches; returns what says how many there were."""

    def begin() -> Callable[[], int]:
        log = bus / "transactions"
        log.touch()
        hook = bus / "hooks" / "reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ngrep -q refs/heads/ && echo $1 >> {log}\nexit 0\n")
        hook.chmod(0o755)
        return lambda: log.read_text().splitlines().count("committed")

    return begin


def archived(host):
    kept = Git.isolated(host.bus.parent / "runners" / "state-one" / "archive.git")
    listed = kept.text("for-each-ref", "--format=%(refname)", "refs/heads/mac-bridge/")
    return [ref.removeprefix("refs/heads/") for ref in listed.splitlines()]


def test_hundreds_go_in_a_few_transactions_and_one_that_runs_stays(
    host, flood, old, count_transactions, monkeypatch
):
    """Of a transaction for each branch the cost grows with the square of their number."""
    monkeypatch.setattr(retention, "BATCH_SIZE", 150)
    runs = old(State.RUNNING, days=20)
    made = flood(300)
    transactions = count_transactions()
    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(keep=1))

    assert swept.deleted == made[:-1]
    assert branches(host.bus) == sorted([made[-1], runs])
    assert archived(host) == made[:-1]
    # Git counts what it packs as one more.
    assert transactions() <= 4


def test_branches_that_stay_hold_up_no_others(host, flood, count_transactions, git, bus, monkeypatch):
    """Two that the bus does not let go, and one that moves between the archive and the deletion."""
    made = flood(40)
    archived = retention.store

    def store_and_move(*args):
        archived(*args)
        git(bus, "update-ref", f"refs/heads/{made[20]}", "refs/heads/main")

    monkeypatch.setattr(retention, "store", store_and_move)
    hook = bus / "hooks" / "update"
    hook.write_text(f"#!/bin/sh\ncase $1 in */{made[7][11:]}|*/{made[30][11:]}) exit 1;; esac\n")
    hook.chmod(0o755)
    transactions = count_transactions()
    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(days=1))

    assert swept.stayed == [made[7], made[20], made[30]]
    assert branches(host.bus) == swept.stayed
    assert transactions() <= 3


def test_a_bus_that_knows_no_transactions_is_swept_too(host, flood, git, bus):
    made = flood(20)
    git(bus, "config", "receive.advertiseAtomic", "false")
    with host.context() as context:
        assert Composer(context).sweeper().sweep(Retention(days=1)).deleted == made
    assert branches(host.bus) == []


def lose_a_file(archive, branch):
    """Remove the state file of an archived branch."""
    kept = Git.isolated(archive, config={"transfer.unpackLimit": "1"})
    kept("repack", "-a", "-d", "-q")
    (pack,) = archive.glob("objects/pack/*.pack")
    loose = pack.rename(archive / "aside.pack")
    pack.with_suffix(".idx").unlink()
    kept("unpack-objects", "-q", stdin=loose.read_bytes())
    state = kept.text("rev-parse", f"refs/heads/{branch}:{wire.STATE}")
    (archive / "objects" / state[:2] / state[2:]).unlink()


def cut_a_pack(archive):
    Git.isolated(archive)("repack", "-a", "-d", "-q")
    (pack,) = archive.glob("objects/pack/*.pack")
    pack.chmod(0o644)
    # The checksum at its end is cut.
    pack.write_bytes(pack.read_bytes()[:-15])


def test_a_lock_that_a_killed_git_left_in_the_archive_stops_nothing(host, flood):
    made = flood(2)
    with host.context() as context:
        archive = context.policy.archive
        retention.store(context.bus.git, archive, context.bus.fetch())
        lock = archive / "packed-refs.lock"
        lock.touch()
        os.utime(lock, (0, 0))
        retention.store(context.bus.git, archive, context.bus.fetch(), host.told.append)
    assert branches(archive) == made
    assert f"{lock} was removed" in host.told[-1]


def test_a_damaged_archive_is_filled_again_from_what_is_still_on_the_bus(host, flood):
    made = flood(3)
    with host.context() as context:
        archive = context.policy.archive
        retention.store(context.bus.git, archive, context.bus.fetch())
        lose_a_file(archive, made[1])
        swept = Composer(context).sweeper().sweep(Retention(days=1))
    assert swept.deleted == made
    assert branches(archive) == made
    assert damage(archive, quick=False) == ""
    assert any("2 of its 3 branches are whole" in line for line in host.told)


DAMAGE = {
    "a pack is cut": cut_a_pack,
    "config is zeros": lambda archive: (archive / "config").write_bytes(bytes(60)),
    "HEAD is empty": lambda archive: (archive / "HEAD").write_bytes(b""),
    "a reference is zeros": lambda archive: (archive / "refs" / "heads" / "x").write_bytes(bytes(41)),
}


@pytest.mark.long
@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_archive_is_moved_aside_and_what_is_whole_is_kept(host, flood, old, harm):
    first = flood(3)
    with host.context() as context:
        Composer(context).sweeper().sweep(Retention(days=1))
        archive = context.policy.archive
    harm(archive)
    second = old(State.SUCCEEDED, days=10)

    with host.context() as context:
        swept = Composer(context).sweeper().sweep(Retention(days=1))

    assert swept.deleted == [second]
    assert damage(archive, quick=False) == ""
    assert branches(archive) == sorted([*first, second])
    assert list(archive.parent.glob("archive.git.damaged-*"))


def test_a_runner_serves_while_its_archive_cannot_be_mended(host, flood, requester, monkeypatch):
    flood(1)
    with host.context() as context:
        Composer(context).sweeper().sweep(Retention(days=1))
        archive = context.policy.archive
    (archive / "HEAD").write_bytes(b"")

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives, "salvage", full)

    assert host.answer(requester.send(requester.manifest())).state is State.SUCCEEDED
    assert any("cannot be repaired now" in line for line in host.told)
    assert (archive / "HEAD").exists()


def test_an_archive_whose_mending_was_killed_is_there_again(host, flood):
    made = flood(2)
    with host.context() as context:
        Composer(context).sweeper().sweep(Retention(days=1))
        archive = context.policy.archive
    archive.rename(archive.with_name("archive.git.new"))

    with host.context():
        assert branches(archive) == made


def test_a_folder_that_is_no_archive_is_never_moved(host, flood, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"1")

    assert not archives.mend(tmp_path / "photos", host.told.append, quick=False)

    assert (tmp_path / "photos" / "one.jpg").exists()


@pytest.mark.long
@pytest.mark.bus
def test_a_sweep_that_is_killed_is_taken_up_again(host, flood, bus, tmp_path, wait_for):
    """Killed between archive and bus: nothing is lost, and the next sweep does the rest."""
    made = flood(200)
    reached = bus / "reached"
    hook = bus / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n[ -e {reached} ] || {{ touch {reached}; sleep 3; exit 1; }}\n")
    hook.chmod(0o755)
    policy = host.policy("one", retention={"days": 1})
    with (tmp_path / "said").open("wb") as out:
        first = programs.start("--policy", policy, "gc", out=out, cwd=tmp_path)
    wait_for(reached.exists)
    first.kill()
    first.wait()
    assert archived(host) == made
    assert branches(host.bus) == made

    done = programs.run("--policy", policy, "gc")

    assert done.returncode == 0, done.stderr
    assert branches(host.bus) == []
    assert archived(host) == made


@pytest.mark.parametrize(
    "section", [{}, {"days": 0}, {"keep": 0}, {"days": 1, "archive": "here"}, {"weeks": 1}]
)
def test_a_section_that_says_nothing_or_too_much_is_refused(runners, section):
    with pytest.raises(Exception, match=r"one\.yaml"):
        load_policy(runners.policy("one", retention=section))
