"""What commands print: readable in a narrow terminal and in a pipe, and honest when it cannot be written."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.errors import UsageError
from bridge.presets import load_presets
from bridge.requests import follow
from runner.cli.common import tell

KAKEYA = (sys.executable, "-P", "-m", "bridge")
FULL = Path("/dev/full")


def in_a_terminal(where: Path, columns: int, *args: str) -> list[str]:
    """Run a command with a terminal of so many columns for its output, and return the lines that it shows."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen([*KAKEYA, *args], cwd=where, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # the other end is closed
        os.close(ours)
    assert process.returncode == 0, shown.decode()
    plain = shown.decode().replace("\r", "")
    return [line.replace("\x1b[36m", "").replace("\x1b[0m", "") for line in plain.split("\n")]


def test_presets_fit_into_eighty_columns_and_are_whole(tmp_path):
    lines = in_a_terminal(tmp_path, 80, "presets")
    text = " ".join(" ".join(lines).split())

    assert max(map(len, lines)) <= 80
    for preset in load_presets(None).values():
        assert preset.name in lines
        assert " ".join(preset.description.split()) in text
    assert "\u2026" not in text


def test_presets_in_a_pipe_are_one_line_each_with_five_columns(tmp_path):
    done = subprocess.run([*KAKEYA, "presets"], cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]

    assert [row[0] for row in rows] == list(load_presets(None))
    assert {len(row) for row in rows} == {5}
    assert all(row[2] == load_presets(None)[row[0]].description for row in rows)


PRINTING = [
    ("presets",),
    ("presets", "noop"),
    ("presets", "--json"),
    ("status",),
    ("logs", "--json"),
    ("--help",),
]


@pytest.mark.rows(1)
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", PRINTING, ids=" ".join)
def test_an_output_that_cannot_be_written_is_told_and_is_no_bug(clone, client, args):
    client.run("noop")
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*KAKEYA, *args], cwd=clone, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: cannot write the output: No space left on device")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.rows(1)
@pytest.mark.parametrize("args", [("presets",), ("presets", "--json"), ("list",)], ids=" ".join)
def test_an_output_that_is_closed_is_no_bug(clone, client, args):
    client.run("noop")
    script = "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, *KAKEYA, *args],
        cwd=clone,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_of_the_system_that_is_missing_is_no_bug(tmp_path, clone, client):
    blocked = tmp_path / "file"
    blocked.touch()
    argv = [*KAKEYA, "demo", "--keep", str(blocked / "below")]
    done = subprocess.run(argv, cwd=clone, capture_output=True, text=True, check=False)

    assert done.returncode in (2, 3), done.stderr
    assert "this is a bug" not in done.stderr


@pytest.mark.parametrize("seconds", [0, 0.5, 31 * 86400])
def test_a_lifetime_of_no_length_or_too_long_is_told_in_the_words_of_the_option(client, git, bus, seconds):

    with pytest.raises(UsageError, match="must expire within 30 days, and not at once") as caught:
        client.run("noop", lifetime=timedelta(seconds=seconds))

    assert "--expires 24h" in caught.value.fix
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""


def test_a_request_that_is_held_says_so_and_not_that_nobody_took_it():
    state = wire.StateFile(
        schema_version=2, state=wire.State.REQUESTED, branch="b", request="0" * 40, salt="s", token=1, sequence=1,
        lease_s=60.0, runner=wire.Runner(id="i", instance="x", version="1"), at="t",
        detail="waits for approval by the runner's operator: it is not signed",
    )  # fmt: skip
    branch = RequestBranch("b", "1" * 40, "0" * 40, state, None, has_foreign_commits=False)

    message = follow.wait_timeout_error(branch, 5).message

    assert "waits for approval by the runner's operator" in message
    assert "no runner took" not in message


def test_a_line_of_the_runners_log_is_one_line_without_credentials(capsys):
    tell("cannot fetch https://u:secret@host/x: a\nforged\x1b[2J")

    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith(r"cannot fetch https://***@host/x: a\nforged\x1b[2J" + "\n")


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    "args", [("presets",), ("--help",), ("run", "--help"), ("list",), ("doctor",)], ids=" ".join
)
def test_a_closed_pipe_is_neither_success_nor_a_failed_job(clone, client, args):
    client.run("noop")
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as out:
        done = subprocess.run([*KAKEYA, *args], cwd=clone, stdout=out, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_long_value_does_not_hide_what_is_wrong_with_it(clone):
    done = subprocess.run(
        [*KAKEYA, "run", "noop", "-p", "x" * 5000], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "write it as NAME=VALUE" in done.stderr
    assert len(done.stderr) < 1200


def test_names_go_on_in_the_next_line_of_a_narrow_terminal(clone, client):
    branch = client.run("noop").branch
    lines = in_a_terminal(clone, 30, "status")
    shown = [line[8:].strip() for line in lines]
    assert branch in "".join(shown)
