"""What every program does with a terminal: colours only where they are wanted, help that can be read, any encoding."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

PROGRAMS = {
    "kakeya": ("bridge", ("presets",), ("doctor",), ("presets", "noop")),
    "kakeya-runner": ("runner", ("check",)),
    "kakeya-engine": ("engine", ("probe",)),
}
COMMANDS = [(module, command) for module, *commands in PROGRAMS.values() for command in commands]


def on_a_terminal(argv, **env) -> bytes:
    """Run a program with a terminal as its output, and return all that it prints."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            printed += piece
        program.wait(120)
    os.close(ours)
    return printed


@pytest.mark.long
@pytest.mark.rows(2)
@pytest.mark.parametrize("wish", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM=dumb"])
@pytest.mark.parametrize(("module", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS])
def test_no_program_styles_its_output_if_nobody_wants_that(clone, tmp_path, module, command, wish):
    if module == "engine":
        pytest.importorskip("mlx")
    argv = [sys.executable, "-P", "-m", module, *(["-C", str(clone)] if module == "bridge" else []), *command]
    env = {**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path)}
    env.pop("NO_COLOR", None)

    assert b"\x1b[" in on_a_terminal(argv, **env)
    printed = on_a_terminal(argv, **{**env, **wish})
    assert printed.strip()
    assert b"\x1b" not in printed


@pytest.mark.parametrize("module", ["bridge", "runner", "engine"])
def test_a_program_without_arguments_prints_its_help_in_lines(module):
    done = subprocess.run([sys.executable, "-P", "-m", module], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "\nOptions:\n" in done.stderr
    assert "error:" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_text_that_the_terminal_cannot_show_is_escaped(presets, encoding, form):
    folder = presets(
        noop={"steps": [{"argv": ["/bin/echo", "done"]}], "description": "Größe \u4f60 \U0001f600"}
    )
    env = {**os.environ, "PYTHONIOENCODING": encoding, "KAKEYA_PRESETS": str(folder)}
    argv = [sys.executable, "-P", "-m", "bridge", "presets", "noop", *form]
    done = subprocess.run(argv, env=env, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "\\u4f60 \\ud83d\\ude00" in text
    if form:
        assert json.loads(text)["description"] == "Größe \u4f60 \U0001f600"


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "exit_code"),
    [(("bench", "native", "--model", "/nowhere"), 2), (("generate", "--no-such-option"), 2)],
)
def test_an_error_of_the_engine_is_json_where_that_was_asked_for(args, exit_code):
    argv = [sys.executable, "-P", "-m", "engine", *args, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    error = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, error["exit_code"]) == (exit_code, exit_code)
    assert error.keys() == {"error", "code", "fix", "exit_code"}
    assert error["error"]
