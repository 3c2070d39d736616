"""Rows of the attack table that are about the bus as a whole: 28 to 38.

One branch, or a flood of them, is made as bad as a pusher can make it. Each time an honest request beside it must be
answered, also after the runner was started anew, and the operator must hear of what was left out.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bridge
import runner
from bridge.bus import history, objects, wire
from bridge.bus.branch_names import is_safe, new_nonce
from bridge.bus.wire import State
from bridge.cli import cli
from bridge.client import Client
from bridge.common import limits
from bridge.errors import InfrastructureError
from bridge.presets import Inputs
from bridge.system.git import Git
from bridge.system.signals import StopRequest
from runner.admit.manifests import Candidate
from runner.bus import transfer
from runner.bus.bus import Budget, Bus
from runner.bus.stale_files import end_orphans, remove_stale_files
from runner.bus.store import scratch_repository
from runner.context import RunnerContext
from runner.job import request_tree
from runner.job.workspace import export_inputs, export_tree
from runner.policy import Limits
from runner.refusal import Refusal
from runner.serve.compose import Composer
from runner.serve.lease import Lease
from runner.serve.loop import serve
from runner.serve.poll import Poller
from runner.serve.tracked import TrackedRequest

pytestmark = pytest.mark.bus

STRANGER = objects.Identity("A Stranger", "stranger@example.invalid")


@dataclass
class Crowd:
    """A bus with a hostile pusher on it, a runner, and somebody honest."""

    bus: Path
    clone: Path
    keyed: Any
    sent: list[Any] = field(default_factory=list)

    @property
    def git(self) -> Git:
        return Git.isolated(self.bus)

    @property
    def told(self) -> str:
        return "\n".join(self.keyed.told)

    def ask(self) -> Any:
        """Send an honest request."""
        self.sent.append(Client(self.clone).run("noop"))
        return self.sent[-1]

    def commit(self, tree: str | None = None, message: str = "x\n", *parents: str) -> str:
        head = self.git.text("rev-parse", "main")
        return objects.commit(self.git, tree or f"{head}^{{tree}}", parents or [head], message, STRANGER)

    def raw(self, kind: str, content: bytes) -> str:
        return self.git.text("hash-object", "-t", kind, "-w", "--literally", "--stdin", stdin=content)

    def put(self, *names: str | bytes, commit: str | None = None) -> None:
        """Put branches of any name on the bus: git's own commands cannot make all of them on every file system."""
        oid = (commit or self.commit()).encode()
        self.git("pack-refs", "--all")
        file = self.bus / "packed-refs"
        head, *lines = [line for line in file.read_bytes().split(b"\n") if line]
        for name in names:
            lines.append(oid + b" refs/heads/" + (name.encode() if isinstance(name, str) else name))
        ordered = sorted(lines, key=lambda line: line.partition(b" ")[2])
        file.write_bytes(b"\n".join([head, *ordered, b""]))

    def serve(self, polls: int = 12, **policy: Any) -> None:
        with self.keyed.context(**policy) as context:
            poller = Composer(context).poller()
            for _ in range(polls):
                poller.poll()

    def is_answered(self) -> bool:
        """Say whether all honest requests are."""
        states = [self.state(run.branch) for run in self.sent]
        return all(state is State.SUCCEEDED for state in states)

    def state(self, branch: str) -> State | None:
        blob = objects.read_blob(self.git, f"refs/heads/{branch}", wire.STATE, max_bytes=wire.MAX_STATE)
        state = wire.parse_state(blob)
        return state.state if state else None


@pytest.fixture
def crowd(bus, clone, keyed) -> Crowd:
    return Crowd(bus, clone, keyed)


def said_state(branch: str, request: str, **changes: Any) -> bytes:
    """Return a state file as a pusher may write it."""
    whole = {
        "schema_version": 2, "state": "requested", "branch": branch, "request": request, "salt": "0" * 16, "token": 1,
        "sequence": 1, "lease_s": 120.0, "runner": {"id": "x", "instance": "x", "version": "0"},
        "at": "2026-01-01T00:00:00Z", "step": None, "detail": "",
    } | changes  # fmt: skip
    return json.dumps(whole).encode()


# Row 28: names.

ODD = [
    "mac-bridge/noop\u2028x",
    "mac-bridge/noop\u0085x",
    b"mac-bridge/noop\x85x",
    b"mac-bridge/\xff\xfe",
    # A form of a listing.
    "mac-bridge/x\u20281234567890123456789012345678901234567890\u00a0refs/heads/y",
    "mac-bridge/" + "/".join(["x" * 199] * 20),
    "mac-bridge/" + "x" * 240,
]


def test_row_28_a_branch_of_any_name_stops_neither_runner_nor_client(crowd):
    run = crowd.ask()
    crowd.put(*ODD)

    crowd.serve(3)

    assert crowd.is_answered()
    assert f"{len(ODD)} branches are left out: no request can have their names" in crowd.told
    assert [status.branch for status in Client(crowd.clone).list()] == [run.branch]
    done = CliRunner().invoke(cli, ["-C", str(crowd.clone), "status", run.branch])
    assert done.exit_code == 0, done.output


def test_row_28_long_names_that_do_not_fit_below_the_store_cost_nothing(crowd):
    crowd.ask()
    crowd.put(*(f"mac-bridge/{i:03d}" + "/y" * 1990 for i in range(25)))

    crowd.serve(2)

    assert crowd.is_answered()
    assert "25 branches are left out" in crowd.told


# Row 29: counters.


@pytest.mark.parametrize("value", [10**18 - 1, limits.COUNTER, limits.COUNTER + 1])
def test_row_29_a_forged_counter_stops_nothing_also_when_its_branch_is_gone(crowd, value):
    run = crowd.ask()
    branches = {counter: f"mac-bridge/noop-{new_nonce()}" for counter in ("token", "sequence")}
    for counter, forged in branches.items():
        state = said_state(forged, run.commit, **{counter: value})
        tree = objects.overlay(crowd.git, f"{run.commit}^{{tree}}", {wire.STATE: state})
        crowd.put(forged, commit=crowd.commit(tree, "x\n", run.commit))

    crowd.serve(4)
    assert crowd.is_answered()
    for forged in branches.values():
        crowd.git("update-ref", "-d", f"refs/heads/{forged}")
    crowd.ask()
    crowd.serve(3)

    assert crowd.is_answered()


counts = st.integers(0, limits.COUNTER) | st.integers(limits.COUNTER - 3, limits.COUNTER)
texts = st.text(max_size=1000)


@given(token=counts, sequence=counts, detail=texts, step=st.none() | counts, lease=st.floats(1e-6, 86_400))
def test_row_29_what_is_written_upon_any_state_that_is_read_can_be_read(token, sequence, detail, step, lease):
    state = wire.parse_state(
        said_state("mac-bridge/x", "0" * 40, token=token, sequence=sequence, step=step, lease_s=lease)
    )
    assert state is not None
    after = state.model_copy(
        update={
            "token": wire.next_count(state.token),
            "sequence": wire.next_count(state.sequence),
            "detail": detail[:1000],
        }
    )
    written = after.to_bytes()
    assert len(written) <= wire.MAX_STATE
    again = wire.parse_state(written)
    assert again is not None
    assert (again.token, again.sequence) == (after.token, after.sequence)


def test_row_29_an_answer_that_cannot_be_read_again_is_dropped_with_its_reason(crowd):
    run = crowd.ask()
    with crowd.keyed.context() as context:
        context.bus.fetch()
        kept = objects.commit(context.bus.git, f"{run.commit}^{{tree}}", [run.commit], "x\n", STRANGER)
        context.ledger.begin(run.commit, branch="mac-bridge/x")
        context.bus.protect(kept)
        context.ledger.record_answer(branch="mac-bridge/x", state="failed", answer=kept, expect=run.commit)

    crowd.serve(2)

    assert crowd.is_answered()
    assert "mac-bridge/x: the answer that was kept cannot be read again; this answer is dropped" in crowd.told


# Row 30: objects beyond the limits.


def wide_tree(crowd: Crowd, size: int) -> str:
    """Make a folder that is about so large, all of it one file under many names."""
    blob = bytes.fromhex(objects.write_blob(crowd.git, b""))
    entry = len(b"100644 00000000\0") + len(blob)
    return crowd.raw("tree", b"".join(b"100644 %08d\0" % i + blob for i in range(size // entry + 1)))


def octopus(crowd: Crowd, middle: str) -> str:
    """Make a commit of thousands of parents, as many before one of them as behind it."""
    head, small = crowd.git.text("rev-parse", "main"), crowd.git("cat-file", "commit", "main").stdout
    parents = "".join(f"parent {oid}\n" for oid in [*[head] * 4000, middle, *[head] * 4000])
    return crowd.raw("commit", small.replace(b"author", f"{parents}author".encode(), 1))


def heavy(crowd: Crowd, what: str) -> str:  # noqa: PLR0911
    if what == "a folder":
        return crowd.commit(wide_tree(crowd, limits.TREE_BYTES))
    if what == "the folder of the request":
        tree = crowd.raw("tree", b"40000 .mac-bridge\0" + bytes.fromhex(wide_tree(crowd, limits.TREE_BYTES)))
        return crowd.commit(tree)
    if what == "a message":
        return crowd.commit(None, "x" * limits.COMMIT_BYTES)
    if what == "a parent's message":
        return crowd.commit(None, "x\n", crowd.commit(None, "x" * limits.COMMIT_BYTES))
    if what == "a message far below":
        commit = crowd.commit(None, "x" * limits.COMMIT_BYTES)
        for _ in range(4):
            commit = crowd.commit(None, "x\n", commit)
        return commit
    if what == "a message between thousands of parents":
        return octopus(crowd, crowd.commit(None, "x" * limits.COMMIT_BYTES))
    return crowd.commit(None, "x\n", crowd.commit(wide_tree(crowd, limits.TREE_BYTES)))


@pytest.mark.parametrize(
    "what",
    [
        "a folder",
        "the folder of the request",
        "a message",
        "a parent's message",
        "a parent's folder",
        "a message far below",
        "a message between thousands of parents",
    ],
)
def test_row_30_an_object_beyond_its_limit_is_left_out_and_never_read(crowd, what):
    crowd.put(f"mac-bridge/noop-{new_nonce()}", commit=heavy(crowd, what))
    crowd.ask()

    crowd.serve(4)

    assert crowd.is_answered()
    assert re.search(r"is left out: its (folder|commit|parent)\b.* are the most", crowd.told)


@pytest.mark.parametrize("megabytes", [40])
def test_row_30_a_runner_stays_small_whatever_is_pushed(crowd, runners, wait_for, megabytes):
    """A folder of a million names and a message of 40 MB: a real runner's peak memory, and its answer beside them."""
    crowd.put(f"mac-bridge/noop-{new_nonce()}", commit=crowd.commit(wide_tree(crowd, megabytes << 20)))
    crowd.put(f"mac-bridge/noop-{new_nonce()}", commit=crowd.commit(None, "x" * (megabytes << 20)))
    crowd.ask()
    runner = runners.start()
    wait_for(crowd.is_answered, timeout=120)

    status = Path(f"/proc/{runner.process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])

    assert peak < 150 * 1024
    assert runner.process.poll() is None


@pytest.mark.parametrize("less", [0, 1])
def test_row_30_what_the_runner_died_over_is_left_out_in_the_end(crowd, monkeypatch, less):
    monkeypatch.setattr("runner.serve.dispatch.UNFINISHED_S", 0.0)
    killer = f"mac-bridge/noop-{new_nonce()}"
    crowd.put(killer)
    tip = crowd.git.text("rev-parse", killer)
    for _ in range(limits.CRASHES - less):
        # As when the process is killed in the attempt.
        with crowd.keyed.context() as context, context.ledger.transaction() as db:
            db.execute(
                "INSERT INTO attempts VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1", (tip,)
            )
    crowd.ask()

    crowd.serve(3)

    assert crowd.is_answered()
    assert (crowd.state(killer) is None) == (not less)
    left_out = f"{killer} is left out: this runner crashed {limits.CRASHES} times on it"
    assert (left_out in crowd.told) == (not less)


@pytest.mark.parametrize("path", ["results", "results/research"])
def test_row_30_a_folder_of_reports_beyond_its_limit_is_refused_before_anything_runs(crowd, path):
    run = crowd.ask()
    manifest = crowd.git("cat-file", "blob", f"{run.branch}:{wire.REQUEST}").stdout
    tree = wide_tree(crowd, limits.TREE_BYTES)
    for part in reversed(path.split("/")):
        tree = crowd.raw("tree", f"40000 {part}".encode() + b"\0" + bytes.fromhex(tree))
    workload = crowd.commit(tree)
    whole = json.loads(manifest) | {"workload": workload}
    asked = objects.overlay(crowd.git, tree, {wire.REQUEST: json.dumps(whole).encode()})
    crowd.git("update-ref", f"refs/heads/{run.branch}", crowd.commit(asked, "x\n", workload))

    crowd.serve(3)

    blob = objects.read_blob(crowd.git, f"refs/heads/{run.branch}", wire.RESULT, max_bytes=wire.MAX_RESULT)
    assert wire.parse_result(blob).reason.code == "tree_too_large"


# Row 31: objects that git refuses, many times.


def poisoned(crowd: Crowd) -> str:
    inner = crowd.git.text("mktree", stdin="")
    return crowd.commit(crowd.raw("tree", b"40000 .GIT\0" + bytes.fromhex(inner)))


def test_row_31_a_thousand_branches_at_one_bad_commit_are_one_search(crowd, monkeypatch):
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(1000)), commit=poisoned(crowd))
    crowd.ask()
    asked = []
    start = transfer.start_fetch
    monkeypatch.setattr(
        transfer, "start_fetch", lambda *args, **at: (asked.append(args[2:]), start(*args, **at))[1]
    )

    with crowd.keyed.context() as context:
        poller = Composer(context).poller()
        for _ in range(4):
            poller.poll()

    assert crowd.is_answered()
    assert len([specs for specs in asked if len(specs) <= 2]) <= 8
    assert "980 more branches are left out" in crowd.told


def test_row_31_a_request_that_comes_during_a_search_does_not_wait_for_its_end(crowd, monkeypatch):
    crowd.put("mac-bridge/noop-1790000000-000000")
    for i in range(30):
        crowd.put(f"mac-bridge/noop-1790000000-a{i:05d}", commit=crowd.commit(
            crowd.raw("tree", b"40000 .GIT\0" + bytes.fromhex(wide_tree(crowd, 100 + 40 * i)))))  # fmt: skip
    monkeypatch.setattr("bridge.common.limits.SEARCH_S", 0.0)
    # On a busy machine a fetch may be slow, and a search after a slow one is put off for a poll.
    monkeypatch.setattr("bridge.common.limits.FETCH_S", 300.0)
    with crowd.keyed.context() as context:
        context.bus.fetch()
        run = crowd.ask()
        assert run.branch in context.bus.fetch()
        assert len(context.bus.commits.reasons) < 30
        while len(context.bus.commits.reasons) < 30:
            assert run.branch in context.bus.fetch()


# Row 32: names of one's own choice.


def test_row_32_a_request_that_is_copied_to_another_namespace_is_not_used_up(crowd):
    run = crowd.ask()
    copy = run.branch.replace("mac-bridge/", "claude/mac-bridge-")
    crowd.git("update-ref", f"refs/heads/{copy}", run.commit)
    crowd.git("update-ref", "-d", f"refs/heads/{run.branch}")
    crowd.serve(2)
    assert crowd.state(copy) is State.SUCCEEDED

    crowd.git("update-ref", f"refs/heads/{run.branch}", run.commit)
    crowd.serve(2)

    assert crowd.is_answered()


# Row 34: trees that no file system can hold.


# Row 35: what killed processes leave.


def test_row_35_locks_and_unfinished_packs_of_a_killed_git_are_removed(crowd):
    crowd.ask()
    crowd.serve(1)
    store = crowd.keyed.runners.folder / "state-one" / "store.git"
    left = [store / name for name in ("packed-refs.lock", "HEAD.lock", "objects/pack/tmp_pack_AbCd12")]
    left.append(store / "refs" / "kept.lock")
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    crowd.ask()

    crowd.serve(2)

    assert crowd.is_answered()
    assert not any(path.exists() for path in left)
    assert "files that a killed git left" in crowd.told
    assert remove_stale_files(store) == []


@pytest.mark.parametrize("folder", ["store.git", "store.git/scratch"])
def test_row_35_git_processes_of_a_killed_runner_are_ended(tmp_path, folder):
    """One that a server keeps busy would otherwise outlive its runner for as long as the server likes."""
    store, endless = tmp_path / "store.git", tmp_path / "endless"
    subprocess.run(["git", "init", "--quiet", "--bare", str(store)], check=True)
    os.mkfifo(endless)
    start = (
        "import os, subprocess, sys; stdin = os.open(sys.argv[1], os.O_RDWR)\n"
        "print(subprocess.Popen(sys.argv[2:], stdin=stdin, stdout=stdin, stderr=stdin, start_new_session=True).pid)\n"
        "sys.stdout.flush(); sys.stdin.read()\n"
    )
    scratch_repository(Git.isolated(store))
    argv = ["git", "--git-dir", str(tmp_path / folder), "cat-file", "--batch"]
    runner = subprocess.Popen(
        [sys.executable, "-c", start, str(endless), *argv],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert runner.stdout
    orphan = psutil.Process(int(runner.stdout.readline()))
    assert end_orphans(store) == {}, "its runner lives"

    runner.kill()
    runner.communicate()

    assert end_orphans(store) == {store: 1}
    assert not psutil.wait_procs([orphan], timeout=60)[1]


# Row 36: a bus that forgets.


def test_row_36_a_bus_that_was_set_back_gets_the_answer_again(crowd):
    run = crowd.ask()
    crowd.serve(1)
    answer = crowd.git.text("rev-parse", run.branch)
    crowd.git("update-ref", f"refs/heads/{run.branch}", run.commit)

    crowd.serve(1)

    assert crowd.git.text("rev-parse", run.branch) == answer
    assert "the bus lost the answer; it is published again" in crowd.told


def test_row_36_a_bus_that_drops_what_is_pushed_is_asked_ever_more_rarely(crowd, monkeypatch):
    pushes: list[None] = []
    spend = Budget.spend
    monkeypatch.setattr(Budget, "spend", lambda budget: (pushes.append(None), spend(budget))[1])
    run = crowd.ask()
    (crowd.bus / "hooks" / "post-receive").write_text(
        f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/{run.branch} {run.commit}\n"
    )
    (crowd.bus / "hooks" / "post-receive").chmod(0o755)
    began = time.monotonic()
    with crowd.keyed.context() as context:
        poller = Composer(context).poller()
        while time.monotonic() - began < 6:
            poller.poll()
            time.sleep(0.05)

    assert len(pushes) <= 8


# Row 37: faults of any call that touches a branch.

ERRORS = [
    ValueError("odd"), InfrastructureError("away", code="unreachable"), InfrastructureError("odd"), RecursionError(),
    MemoryError(), OSError(36, "File name too long"), UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogate"),
    AssertionError(),
]  # fmt: skip


class Faults:
    """Raises errors in the functions that a poll calls about one branch: with itself, its name or its commit.

    The functions are found by looking at what is called. An error is raised in the call itself, as if its first line
    did that.
    """

    def __init__(self) -> None:
        self.branch = self.tip = ""
        self.seen: dict[CodeType, None] = {}
        self.at: CodeType | None = None
        self.raised = 0
        self._errors = itertools.cycle(ERRORS)

    def watch_polls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch all of each poll after the fetch. Python ends the watch when it raises: each poll begins it."""
        poll, fetch_tips = Poller.poll, Bus.fetch

        def fetched(bus: Bus) -> dict[str, str]:
            tips = fetch_tips(bus)
            sys.setprofile(self._watch)
            return tips

        def polled(poller: Poller, *order: Any) -> bool:
            try:
                return poll(poller, *order)
            finally:
                sys.setprofile(None)

        monkeypatch.setattr(Bus, "fetch", fetched)
        monkeypatch.setattr(Poller, "poll", polled)

    def _watch(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OURS) or code.co_name.startswith("<"):
            return
        if self.at in (None, code) and any(self._is_about(frame.f_locals.get(name)) for name in named(code)):
            self.seen[code] = None
            if self.at is code:
                self.raised += 1
                raise next(self._errors)

    def _is_about(self, value: object) -> bool:
        if isinstance(value, str):
            return value in (self.branch, self.tip, f"{self.branch} {self.tip}")
        if isinstance(value, Candidate | TrackedRequest):
            return value.branch.name == self.branch
        if isinstance(value, history.RequestBranch):
            return value.name == self.branch
        return isinstance(value, Lease) and value.branch == self.branch


OURS = tuple(str(Path(package.__file__).parent) for package in (bridge, runner) if package.__file__)
# What says of a failure that there was one, and how often: without these nothing can be set aside.
RECORDS = ("failed", "mark_failed", "back_off", "allows", "request_key", "skip", "_is_about")


def named(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def strange(crowd: Crowd, faults: Faults, ago: int) -> None:
    """Put a request on the bus, older than all others, at which the faults are."""
    faults.branch = f"mac-bridge/noop-{int(time.time()) - ago}-abcdef"
    manifest = {
        "schema_version": 1, "preset": "noop", "params": {}, "ref": "x", "requested_by": f"{ago}",
        "nonce": faults.branch.removeprefix("mac-bridge/noop-"),
    }  # fmt: skip
    tree = objects.overlay(crowd.git, "main^{tree}", {wire.REQUEST: json.dumps(manifest).encode()})
    faults.tip = crowd.commit(tree)
    crowd.put(faults.branch, commit=faults.tip)


def served(crowd: Crowd, context: RunnerContext, branch: str) -> None:
    """Serve until a request is answered."""
    process = replace(context.process, stop=StopRequest())
    context, until = replace(context, process=process), time.monotonic() + 120

    def look() -> None:
        while time.monotonic() < until and crowd.state(branch) is None:
            time.sleep(0.05)
        context.process.stop.set()

    watcher = threading.Thread(target=look)
    watcher.start()
    serve(context)
    watcher.join()


def test_row_37_a_fault_in_any_call_about_one_branch_keeps_no_other_waiting(crowd, monkeypatch):
    """Whatever is raised by whatever call that is about the hostile branch, the honest requests are answered."""
    faults = Faults()
    faults.watch_polls(monkeypatch)
    with crowd.keyed.context(
        presets=["other"], bus={"poll_s": 0.05, "idle_poll_s": 0.05, "presence_s": None}
    ) as context:
        strange(crowd, faults, 50_000)
        served(crowd, context, crowd.ask().branch)
        points = [code for code in faults.seen if code.co_name not in RECORDS]
        assert len(points) > 20
        missed = []
        for i, code in enumerate(points):
            faults.at, faults.raised = code, 0
            strange(crowd, faults, 40_000 - i)
            run = crowd.ask()
            served(crowd, context, run.branch)
            if crowd.state(run.branch) is not State.REFUSED:
                missed.append((code.co_qualname, crowd.keyed.told[-5:]))
        assert not missed


def test_row_37_a_bug_in_a_poll_or_a_chore_ends_no_service_and_is_told(crowd, monkeypatch):
    run = crowd.ask()
    errors: Iterator[Exception] = iter([ValueError("odd"), KeyError("odd"), RecursionError()])

    def find_conflicts(*_args: object) -> Any:
        raise TypeError("a chore")

    real = Poller.poll

    def poll(poller: Poller, order: Any) -> bool:
        for error in errors:
            raise error
        return real(poller, order)

    monkeypatch.setattr("runner.upkeep.chores.find_conflicts", find_conflicts)
    monkeypatch.setattr(Poller, "poll", poll)
    monkeypatch.setattr("runner.serve.loop.LONGEST_TROUBLE_S", 0.1)
    with crowd.keyed.context(bus={"poll_s": 0.05, "idle_poll_s": 0.05}) as context:
        served(crowd, context, run.branch)

    assert crowd.state(run.branch) is not None
    assert re.search(
        r"a bug of this runner, .*: ValueError: odd \(.*test_bus_rows.py:\d+ poll\); trying", crowd.told
    )
    assert re.search(r"a bug of this runner, .*: TypeError: a chore .*; trying again in an hour", crowd.told)


def test_row_37_a_branch_that_cannot_be_read_is_found_among_others(crowd, wait_for, monkeypatch):
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(20)))
    bad = f"mac-bridge/noop-{new_nonce()}"
    crowd.put(bad)
    real = history.read_branches

    def fails(git: Git, tips: dict[str, str], **more: bool) -> Any:
        if bad in tips:
            raise RuntimeError("odd")
        return real(git, tips, **more)

    monkeypatch.setattr(history, "read_branches", fails)
    crowd.ask()
    with crowd.keyed.context() as context:
        poller = Composer(context).poller()
        wait_for(lambda: not poller.poll() and f"{bad}: tried less and less often from now on" in crowd.told)

    assert crowd.is_answered()


# Row 38: claims that anyone can write.


def test_row_38_a_claim_with_a_lease_of_a_day_is_waited_for_as_the_policy_says(crowd):
    run = crowd.ask()
    claim = said_state(run.branch, run.commit, state="claimed", lease_s=86_400.0)
    tree = objects.overlay(crowd.git, f"{run.commit}^{{tree}}", {wire.STATE: claim})
    crowd.git("update-ref", f"refs/heads/{run.branch}", crowd.commit(tree, "x\n", run.commit))
    with crowd.keyed.context(bus={"lease_s": 1.0, "max_lease_s": 1.0}) as context:
        poller = Composer(context).poller()
        assert not poller.poll()
        time.sleep(1.3)
        poller.poll()

    assert crowd.is_answered()


# The limits.


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("x" * limits.BRANCH_PART_CHARS, True),
        ("x" * (limits.BRANCH_PART_CHARS + 1), False),
        ("/".join(["y" * 124, "z" * 125]), True),
        ("/".join(["y" * 125, "z" * 125]), False),
        ("a//b", False), ("a/.b", False), ("a/b.lock", False), ("a/b.", False), ("a/", False), ("a\u2028b", False),
    ],
)  # fmt: skip
def test_names_are_bounded(name, fits):
    assert is_safe(name) is fits


def test_paths_are_bounded(crowd):
    deep = "/".join(["a"] * limits.PATH_PARTS)
    tree = objects.overlay(crowd.git, None, {deep: b"1", f"{deep}x/y": b"2"})
    found = objects.locate(crowd.git, [f"{tree}:{deep}", f"{tree}:{deep}x/y"])
    assert list(found) == [f"{tree}:{deep}"]


def test_more_branches_than_the_limit_are_looked_at_by_turns(crowd, monkeypatch):
    monkeypatch.setattr(limits, "BRANCHES", 5)
    monkeypatch.setattr("runner.bus.listing.CHOSEN_S", 0.0)
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(9)))
    with crowd.keyed.context() as context:
        seen: set[str] = set()
        for _ in range(400):  # every third poll chooses some anew, by chance
            tips = context.bus.fetch()
            assert len(tips) == 5
            seen |= tips.keys()
            if len(seen) == 9:
                break
        assert len(seen) == 9
        assert "4 request branches more than the 5" in context.bus.listing.news()[0]


def test_row_81_beside_too_many_branches_what_is_new_is_looked_at_until_it_has_had_its_turn(
    crowd, monkeypatch
):
    """A choice that is made anew for each poll would lose a request before its turn, again and again."""
    monkeypatch.setattr(limits, "BRANCHES", 20)
    # However long the polls take.
    monkeypatch.setattr("runner.bus.listing.CHOSEN_S", 3600.0)
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(60)))
    with crowd.keyed.context() as context:
        context.bus.fetch()
        run = crowd.ask()
        for i in range(10):
            assert run.branch in context.bus.fetch()
            # The listing changes each time.
            crowd.put(f"mac-bridge/noop-{new_nonce(1_700_000_000 + i)}")
        monkeypatch.setattr("runner.bus.listing.CHOSEN_S", 0.0)
        assert any(run.branch not in context.bus.fetch() for _ in range(60)), "others have their turn too"


def test_row_81_of_many_branches_at_one_commit_some_are_looked_at(crowd, monkeypatch):
    monkeypatch.setattr(limits, "COPIES", 5)
    monkeypatch.setattr("runner.bus.listing.CHOSEN_S", 0.0)
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(40)))
    run = crowd.ask()
    with crowd.keyed.context() as context:
        seen = [context.bus.fetch() for _ in range(20)]

    assert all(run.branch in tips for tips in seen)
    assert max(map(len, seen)) < 40
    assert len(set().union(*seen)) > 15


def test_a_listing_beyond_its_limit_is_read_as_it_comes(crowd, monkeypatch):
    monkeypatch.setattr(limits, "LISTING_BYTES", 100)
    run = crowd.ask()
    crowd.put(*(f"mac-bridge/noop-{new_nonce()}" for _ in range(50)))
    with crowd.keyed.context() as context:
        assert len(context.bus.fetch()) == 51
        assert run.branch in context.bus.fetch()


# Row 59: trees that are small to push and large to list.


def unfolded(crowd: Crowd, files: int, deep: int) -> str:
    """Return a commit of so many files below results/research, each so deep, in a handful of objects."""
    blob = crowd.raw("blob", b"{}")
    inner = crowd.raw("tree", b"100644 x.json\0" + bytes.fromhex(blob))
    for _ in range(deep):
        inner = crowd.raw("tree", b"40000 d\0" + bytes.fromhex(inner))
    wide = b"".join(b"40000 %07d\0" % i + bytes.fromhex(inner) for i in range(files))
    tree = crowd.raw("tree", b"40000 research\0" + bytes.fromhex(crowd.raw("tree", wide)))
    return crowd.commit(crowd.raw("tree", b"40000 results\0" + bytes.fromhex(tree)))


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("deep", [3, 100], ids=["many files", "many folders"])
def test_row_59_a_request_s_tree_is_not_held_in_memory(crowd, tmp_path, deep):
    commit = unfolded(crowd, 30_000, deep)
    most = Limits(tree_files=20_000)
    with little_memory(16 << 20), pytest.raises(Refusal) as caught:
        export_tree(crowd.git, commit, tmp_path / "tree", most)
    assert caught.value.code == "tree_too_large"
    assert not (tmp_path / "tree").exists()


def test_row_59_a_submodule_among_very_many_folders_takes_no_memory(crowd):
    """Whoever holds a submodule is read again, for modes that git does not know: folders are listed for that."""
    inner = unfolded(crowd, 30_000, 3)
    top = crowd.git("cat-file", "tree", f"{inner}^{{tree}}").stdout
    holder = crowd.raw("tree", b"160000 module\0" + bytes.fromhex(inner))
    commit = crowd.commit(crowd.raw("tree", b"40000 a\0" + bytes.fromhex(holder) + top))
    (module,) = [
        entry for entry in request_tree.tree_entries(crowd.git, commit, 200_000) if entry.kind == "commit"
    ]
    with little_memory(4 << 20):
        request_tree.check_modes(crowd.git, commit, [module], 200_000)
    with little_memory(4 << 20), pytest.raises(Refusal, match="more than 10000 folders"):
        request_tree.check_modes(crowd.git, commit, [module], 9_999)


def test_row_59_a_large_folder_with_a_submodule_is_refused(crowd, monkeypatch):
    blob = crowd.raw("blob", b"")
    tree = crowd.raw("tree", b"160000 a\0" + bytes.fromhex(crowd.git.text("rev-parse", "main"))
                     + b"100644 b\0" + bytes.fromhex(blob))  # fmt: skip
    monkeypatch.setattr(limits, "TREE_BYTES", 40)
    commit = crowd.commit(tree)
    odd = [entry for entry in request_tree.tree_entries(crowd.git, commit, 10) if entry.kind == "commit"]
    with pytest.raises(Refusal) as caught:
        request_tree.check_modes(crowd.git, commit, odd, 10)
    assert caught.value.code == "tree_too_large"


def test_row_59_a_job_s_inputs_are_not_held_in_memory(crowd, tmp_path):
    inputs = Inputs(under="results/research", ending=".json")
    commit = unfolded(crowd, 30_000, 190)
    with little_memory(16 << 20), pytest.raises(Refusal, match=r"holds 30000 files \.json; 1000 are"):
        export_inputs(crowd.git, commit, inputs, tmp_path / "tree")


def test_row_59_a_large_file_is_written_in_pieces(crowd, tmp_path):
    whole = b"0123456789abcdef" * (4 << 20)
    tree = crowd.raw("tree", b"100755 large\0" + bytes.fromhex(crowd.raw("blob", whole)))
    commit = crowd.commit(tree)
    with little_memory(16 << 20):
        export_tree(crowd.git, commit, tmp_path / "tree", Limits())
    assert (tmp_path / "tree" / "large").read_bytes() == whole
    assert os.access(tmp_path / "tree" / "large", os.X_OK)
