"""Rows of the attack table that aim at whoever reads: answers, states and names forged by someone who may push."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge import gate
from bridge.bus import wire
from bridge.bus.wire import Result
from bridge.cli import main
from bridge.client import Run
from bridge.common import limits
from bridge.errors import UsageError, VerificationError

pytestmark = pytest.mark.bus

TIME = "2026-01-31T12:00:00Z"
RUNNER = {"id": "forged", "instance": "x", "version": "1"}
# Each command with its children. Seconds of processor time: what else the machine does is not counted.
MOST_MIB, MOST_CPU_S = 200, 30


@dataclass
class Forgery:
    """A request with an answer that no runner gave, made of commits alone."""

    bus: Path
    run: Run
    state: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes | None] = field(default_factory=dict)

    def states(self, **fields: Any) -> bytes:
        """Return a state file."""
        whole = {
            "schema_version": 2, "state": "refused", "branch": self.run.branch, "request": self.run.commit, "salt": "1",
            "token": 1, "sequence": 1, "lease_s": 60.0, "runner": RUNNER, "at": TIME, **self.state, **fields,
        }  # fmt: skip
        return json.dumps(whole).encode()

    def results(self) -> bytes:
        """Return a result file."""
        listed = [
            {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for path, data in self.files.items() if data is not None and path.startswith((wire.LOGS, wire.REPORTS))
        ]  # fmt: skip
        whole = {
            "schema_version": 2, "state": "refused", "reason": {"code": "x", "message": "no"},
            "branch": self.run.branch, "nonce": self.run.status().nonce, "request": self.run.commit, "workload": None,
            "requested_by": "tester@example.invalid", "preset": "noop", "preset_digest": None, "code": None,
            "params": {}, "commands": [], "exit_code": 4, "token": 1, "runner": RUNNER, "host": {}, "versions": {},
            "started_at": TIME, "finished_at": TIME, "seconds": 0.0, "logs": [], "files": listed, **self.result,
        }  # fmt: skip
        return json.dumps(whole).encode()

    def push(self, before: bytes = b"") -> str:
        """Put the answer upon the request, or upon what `before` makes of it, and return the branch."""
        state, result = self.states(), self.results()
        parent = ":1" if before else str(self.run.commit)
        lines = [b"reset refs/heads/%s\n" % self.run.branch.encode(), before]
        lines.append(commit(self.run.branch, parent, 9))
        for path, data in {**self.files, wire.STATE: state, wire.RESULT: result}.items():
            if data is not None:
                lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
        fast_import(self.bus, lines)
        return self.run.branch


def commit(branch: str, parent: str, mark: int) -> bytes:
    return (
        f"commit refs/heads/{branch}\nmark :{mark}\ncommitter F <f@x> 1769860800 +0000\ndata 0\nfrom {parent}\n"
    ).encode()


def fast_import(bus: Path, lines: list[bytes]) -> None:
    done = subprocess.run(
        ["git", "fast-import", "--quiet", "--force"], cwd=bus, input=b"".join(lines), capture_output=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def forge(client, bus) -> Callable[..., Forgery]:
    def make(
        *, files: Mapping[str, bytes] | None = None, state: dict[str, Any] | None = None, **result: Any
    ) -> Forgery:
        return Forgery(bus, client.run("noop"), state or {}, result, dict(files or {}))

    return make


@pytest.fixture
def kakeya(monkeypatch, capsys, clone) -> Callable[..., tuple[int, str]]:
    """Run a command in the clone; return its exit code and all that it printed."""
    monkeypatch.chdir(clone)

    def call(*args: str) -> tuple[int, str]:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["kakeya", *args])
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out + err

    return call


# Runs several commands in one process, which starts once, and prints after each how it ended.
IN_TURN = """
import json, sys
from bridge.cli import main
for args in json.loads(sys.argv[1]):
    sys.argv = ["kakeya", *args]
    try:
        main()
    except SystemExit as ended:
        print("ENDED", ended.code)
"""


def measured(where: Path, *args: str) -> tuple[int, str, float, float]:
    """Run a command as a process of its own; return code, output, its processor time, and the most MiB of a process."""
    return measured_process(where, "-m", "bridge", *args)


def measured_process(where: Path, *args: str) -> tuple[int, str, float, float]:
    argv = [sys.executable, "-P", *args]
    script = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print('USED', used.ru_utime + used.ru_stime, used.ru_maxrss)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *argv],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    out, _, used = done.stdout.rpartition("USED ")
    seconds, rss = used.split()
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return done.returncode, out + done.stderr, float(seconds), int(rss) / unit


# Row 39: an answer whose names are paths.

PATHS = ["../../../evil", "/tmp/evil", "..", "a/../../b", "noop\n", "a\0b", ".git", "x" * 5000]


@pytest.mark.parametrize(
    ("name", "place"), [*((name, "preset") for name in PATHS), (PATHS[0], "nonce")], ids=ascii
)
def test_row_39_a_result_whose_names_are_paths_is_none(forge, client, tmp_path, monkeypatch, name, place):
    monkeypatch.chdir(tmp_path)
    branch = forge(**{place: name}).push()
    before = sorted(tmp_path.rglob("*evil*"))

    with pytest.raises(VerificationError, match="not valid"):
        client.fetch(branch)

    assert sorted(tmp_path.rglob("*evil*")) == before
    assert not (tmp_path / "kakeya-results").exists()


# Row 40: what was forged is printed.

STEERING = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\u2028\x85\r\nok    signature    signed\nnext: rm [b]-rf[/] [/x]"


@pytest.mark.parametrize("state", ["refused", "running"])
def test_row_40_nothing_that_was_forged_steers_a_terminal_or_adds_a_line(
    forge, kakeya, tmp_path, clone, state
):
    forged = forge(
        state={"state": state, "detail": STEERING, "runner": {**RUNNER, "id": STEERING[:60]}, "at": STEERING},
        files={f"{wire.LOGS}/noop-0.log": STEERING.encode(), f"{wire.REPORTS}/a.json": STEERING.encode()},
        reason={"code": STEERING, "message": STEERING},
        host={"name": STEERING, STEERING: 1},
        versions={STEERING: STEERING},
        trusted_by=STEERING,
        skipped=[STEERING],
        gate={
            "verdict": "REJECTED",
            "violations": [{"code": STEERING, "message": STEERING, "path": STEERING}],
        },
        commands=[{"argv": [STEERING], "exit_code": 0, "seconds": 1.0, "log": STEERING}],
        runner={**RUNNER, "id": STEERING[:60]},
    )
    branch = forged.push()
    commands = [
        ("status", branch), ("list",), ("wait", branch, "--timeout", "0"), ("logs", branch), ("verify", branch),
        ("fetch", branch), ("report", branch), ("report", "--markdown", branch), ("doctor",), ("cancel", branch),
        ("list", "--claims"), ("status", "--json", branch), ("verify", "--json", branch), ("report", "--json", branch),
        ("report", branch, "--out", str(tmp_path / "page.html")),
    ]  # fmt: skip

    for command in commands:
        code, shown = kakeya(*command)
        assert code != 70, (command, shown)
        assert shown.replace("\n", "").replace("\t", "").isprintable(), (command, ascii(shown))
        if command[0] != "logs":
            # A log has lines of its own; nothing else that is forged may make one.
            assert not [line for line in shown.split("\n") if line.startswith(("ok    sig", "next: rm"))], (
                command
            )
    page = tmp_path / "page.html"
    assert not page.exists() or page.read_text().replace("\n", "").isprintable()


def test_row_40_branches_with_odd_names_stop_no_command(client, kakeya, bus, git):
    honest = client.run("noop")
    for name in (
        "mac-bridge/a\u2028b",
        "mac-bridge/c\u0085d",
        "mac-bridge/noop-1700000000-abc123\u202e",
        "mac-bridge/x\udcff",
    ):
        subprocess.run(
            ["git", "update-ref", os.fsencode(f"refs/heads/{name}"), "refs/heads/main"], cwd=bus, check=True
        )

    for command in (("list",), ("status",), ("doctor",), ("gc",), ("logs",), ("status", "no-such")):
        code, shown = kakeya(*command)
        assert code in (0, 2), (command, shown)
        assert shown.replace("\n", "").isprintable()
    assert honest.branch in kakeya("list")[1]


def test_row_40_a_hook_of_the_server_steers_nothing_and_is_told(client, bus, kakeya):
    hook = bus / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nprintf 'closed for \\033]52;c;eA==\\007 today\\n' >&2\nexit 1\n")
    hook.chmod(0o755)

    code, shown = kakeya("run", "noop")

    assert code == 4
    assert "closed for" in shown
    assert "today" in shown
    assert shown.replace("\n", "").isprintable()


# Row 41: little on the bus, and much for whoever reads it.


def tree_bomb(bus: Path, forged: Forgery) -> str:
    """Ten folders in each of ten levels below the answer's folder: ten thousand million files in eleven objects."""
    branch = forged.push()

    def git(*args: str, stdin: bytes) -> str:
        return (
            subprocess.run(["git", *args], cwd=bus, input=stdin, capture_output=True, check=True)
            .stdout.decode()
            .strip()
        )

    oid = git("hash-object", "-w", "--stdin", stdin=b"x")
    kind, mode = "blob", "100644"
    for _ in range(10):
        oid = git("mktree", stdin="".join(f"{mode} {kind} {oid}\t{i}\n" for i in range(10)).encode())
        kind, mode = "tree", "040000"
    inner = git("ls-tree", f"{branch}:{wire.FOLDER}", stdin=b"") + f"\n040000 tree {oid}\tbomb\n"
    folder = git("mktree", stdin=inner.encode())
    root = git("ls-tree", branch, stdin=b"").split("\n")
    lines = [line if wire.FOLDER not in line else f"040000 tree {folder}\t{wire.FOLDER}" for line in root]
    top = git("mktree", stdin=("\n".join(lines) + "\n").encode())
    tip = git("commit-tree", top, "-p", f"{branch}^", "-m", "x", stdin=b"")
    git("update-ref", f"refs/heads/{branch}", tip, stdin=b"")
    return "files differ"


def one_log_for_all(bus: Path, forged: Forgery) -> str:
    """Six thousand states that share one piece of log."""
    piece = b"x" * 500_000
    lines = [b"blob\nmark :5\ndata %d\n%s\n" % (len(piece), piece)]
    parent = str(forged.run.commit)
    for i in range(6000):
        state = forged.states(state="running", salt=str(i), sequence=i)
        lines.append(commit(forged.run.branch, parent, 1))
        lines.append(
            b"M 100644 :5 %s\nM 100644 inline %s\ndata %d\n"
            % (wire.STREAM.encode(), wire.STATE.encode(), len(state))
        )
        lines.append(state + b"\n")
        parent = ":1"
    forged.state["sequence"] = 6000
    forged.result["logs"] = [
        {"path": f"{wire.LOGS}/noop-0.log", "stream_sha256": "0" * 64, "stream_bytes": 3_000_000_000,
         "kept_bytes": 1, "truncated": True}
    ]  # fmt: skip
    forged.push(b"".join(lines))
    return "noop-0.log is not the log"


def one_file_for_all(bus: Path, forged: Forgery) -> str:
    """A thousand entries that share one blob of 40 MB."""
    data = bytes(40 << 20)
    digest = hashlib.sha256(data).hexdigest()
    names = [f"{wire.REPORTS}/{i}.json" for i in range(1000)]
    forged.result["files"] = [{"path": name, "sha256": digest, "size": len(data)} for name in names]
    before = [
        b"blob\nmark :5\ndata %d\n" % len(data),
        data,
        b"\n",
        commit(forged.run.branch, str(forged.run.commit), 1),
    ]
    before += [b"M 100644 :5 %s\n" % name.encode() for name in names]
    forged.push(b"".join(before))
    return "together are larger"


def many_large_files(bus: Path, forged: Forgery) -> str:
    """Three hundred mebibytes, which a reader does take: they are hashed, and never lie in memory together."""
    names = [f"{wire.REPORTS}/{i}.json" for i in range(5)]
    forged.result["files"] = [{"path": name, "sha256": "0" * 64, "size": 1} for name in names]
    before = [commit(forged.run.branch, str(forged.run.commit), 1)]
    for i, name in enumerate(names):
        data = bytes([i]) * (60 << 20)
        before += [b"M 100644 inline %s\ndata %d\n" % (name.encode(), len(data)), data, b"\n"]
    forged.push(b"".join(before))
    return "was changed"


def a_path_with_nul(bus: Path, forged: Forgery) -> str:
    forged.result["files"] = [{"path": f"{wire.REPORTS}/a\0b", "sha256": "0" * 64, "size": 1}]
    forged.push()
    return r"a\x00b"


def many_entries(bus: Path, forged: Forgery) -> str:
    forged.result["files"] = [{"path": f"{wire.REPORTS}/{i}", "sha256": "", "size": 1} for i in range(2001)]
    forged.push()
    return "files: must have at most 2000 entries"


def many_logs(bus: Path, forged: Forgery) -> str:
    """Five thousand logs of two bytes each in the result, for which one blob of 64 MiB stands."""
    return logs_of_one_blob(forged, 5_000, size=2, mib=64)


def the_same_log_again(bus: Path, forged: Forgery) -> str:
    logs_of_one_blob(forged, 2, size=2, mib=64, one_path=True)
    return "two steps have the same log"


def as_many_logs_as_there_may_be(bus: Path, forged: Forgery) -> str:
    """Sixteen logs, for which one blob of 64 MiB stands, and which are no files of the answer."""
    logs_of_one_blob(forged, limits.ANSWER_STEPS, size=5, mib=64)
    return "noop-0.log"


def large_logs_with_gaps(bus: Path, forged: Forgery) -> str:
    """Sixteen logs of 32 MiB, all of them files of the answer, each of which is streamed with a gap and differs."""
    size = 32 << 20
    digest = hashlib.sha256(bytes(size)).hexdigest()
    names = [f"{wire.LOGS}/noop-{i}.log" for i in range(limits.ANSWER_STEPS)]
    forged.result["files"] = [{"path": name, "sha256": digest, "size": size} for name in names]
    logs_of_one_blob(forged, len(names), size=size, mib=32, digest=digest, last=b"x")
    return "noop-15.log"


def logs_of_one_blob(
    forged: Forgery, count: int, *, size: int, mib: int, one_path: bool = False, digest: str = "0" * 64,
    last: bytes = b"\0",
) -> str:  # fmt: skip
    """Forge an answer with logs that share a blob of zeros. Of each, one or two bytes at its end are streamed."""
    names = [f"{wire.LOGS}/noop-{0 if one_path else i}.log" for i in range(count)]
    forged.result["logs"] = [
        {"path": name, "stream_sha256": digest, "stream_bytes": size, "kept_bytes": size, "truncated": False}
        for name in names
    ]
    lines = [b"blob\nmark :5\ndata %d\n" % (mib << 20), bytes(mib << 20), b"\n"]
    parent = str(forged.run.commit)
    for i in range(min(count, limits.ANSWER_STEPS)):
        # A piece counts if it differs from the one before.
        piece = (last if i == count - 1 else b"\0") * (1 + i % 2)
        state = forged.states(state="running", salt=str(i), sequence=i, left_out=size - len(piece))
        lines += [commit(forged.run.branch, parent, 1)]
        for path, data in ((wire.STREAM, piece), (wire.STATE, state)):
            lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
        parent = ":1"
    lines += [commit(forged.run.branch, parent, 1), b"D %s\n" % wire.STREAM.encode()]
    lines += [b"M 100644 :5 %s\n" % name.encode() for name in dict.fromkeys(names)]
    forged.state["sequence"] = count
    forged.push(b"".join(lines))
    return f"logs: must have at most {limits.ANSWER_STEPS} entries"


BOMBS = [
    tree_bomb, one_log_for_all, one_file_for_all, many_large_files, a_path_with_nul, many_entries, many_logs,
    the_same_log_again, as_many_logs_as_there_may_be, large_logs_with_gaps,
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_row_41_a_bomb_costs_a_reader_little(forge, bus, clone, bomb):
    # The objects are at hand already: packing and sending them is git's work, and not what this is about.
    (clone / ".git" / "objects" / "info" / "alternates").write_text(f"{bus / 'objects'}\n")
    forged = forge()
    problem = bomb(bus, forged)
    branch = forged.run.branch

    commands = [("fetch", branch), ("verify", branch), ("report", branch), ("list",)]
    _, shown, seconds, mib = measured_process(clone, "-c", IN_TURN, json.dumps(commands))
    assert re.findall(r"^ENDED (\d)$", shown, re.MULTILINE) == ["1", "1", "1", "0"], shown[-2000:]
    assert " ".join(shown.split()).count(problem) >= 3, shown[-2000:]
    assert mib < MOST_MIB
    assert seconds < MOST_CPU_S
    assert not list(clone.glob("kakeya-results/*"))


def test_row_41_markup_in_the_name_of_a_runner_is_text(forge, kakeya):
    forged = forge(state={"runner": {**RUNNER, "id": "[/bold][link=x]"}})
    branch = forged.push()

    for command in (("list",), ("status", branch), ("wait", branch)):
        code, shown = kakeya(*command)
        assert code in (0, 1, 4)  # 1: `wait` verifies the answer, and it does not hold
        assert command[0] == "wait" or "[/bold][link=x]" in shown


# Row 42: files that are no files.


def test_row_42_pipes_devices_and_links_to_them_are_not_waited_for(tmp_path, clone):
    folder = tmp_path / "reports"
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "nowhere.json").symlink_to("/nowhere")
    (folder / "itself.json").symlink_to("itself.json")
    (folder / "sparse.json").touch()
    os.truncate(folder / "sparse.json", 1 << 40)

    for named in (folder, *sorted(folder.iterdir())[3:4], folder / "zero.json"):
        code, shown, seconds, mib = measured(clone, "gate", str(named))
        assert code in (2, 5, 7), shown
        assert seconds < MOST_CPU_S
        assert mib < MOST_MIB
    assert gate.judge({"a.json": b""}).verdict == "REJECTED"


def test_row_60_tiny_lists_in_a_report_take_no_memory(tmp_path, clone):
    (tmp_path / "report.json").write_bytes(b"[" + b"[]," * (16 << 20 >> 2) + b"[]]")

    code, shown, seconds, mib = measured(clone, "gate", str(tmp_path))

    assert code == 7, shown
    assert seconds < MOST_CPU_S
    assert mib < MOST_MIB


# Row 44: links in the reader's own clone.


@pytest.fixture
def answered(client, keyed) -> str:
    run = client.run("noop")
    keyed.handle()
    return run.branch


def test_row_44_a_results_folder_that_is_a_link_is_not_followed(
    client, answered, clone, tmp_path, monkeypatch
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (clone / "kakeya-results").symlink_to(outside)
    monkeypatch.chdir(clone)

    with pytest.raises(UsageError, match="kakeya-results is not a folder"):
        client.fetch(answered)

    assert list(outside.iterdir()) == []


def test_row_44_an_answers_folder_that_is_a_link_is_not_followed(
    client, answered, clone, tmp_path, monkeypatch
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (clone / "kakeya-results").mkdir()
    result: Result = client.result(answered)
    (clone / "kakeya-results" / f"noop-{result.nonce}").symlink_to(outside)
    monkeypatch.chdir(clone)

    with pytest.raises(UsageError, match="is a link"):
        client.fetch(answered)

    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_row_44_a_gitignore_that_is_a_link_is_not_written_through(
    client, answered, clone, tmp_path, monkeypatch
):
    (clone / "kakeya-results").mkdir()
    (clone / "kakeya-results" / ".gitignore").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(clone)

    assert client.fetch(answered).folder.is_dir()
    assert not (tmp_path / "elsewhere").exists()
