"""What every program does with a terminal: colours only where they are wanted, help that can be read, any encoding."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios

import pytest

from bridge.common.cli import screen

PROGRAMS = {
    "kakeya": ("bridge", ("presets",), ("doctor",), ("presets", "noop")),
    "kakeya-runner": ("runner", ("check",)),
    "kakeya-engine": ("engine", ("probe",)),
}
COMMANDS = [(module, command) for module, *commands in PROGRAMS.values() for command in commands]


def on_a_terminal(argv, size: tuple[int, int] | None = None, **env) -> bytes:
    """Run a program with a terminal (of these rows and columns) as its output, and return all that it prints."""
    ours, theirs = pty.openpty()
    if size:
        termios.tcsetwinsize(theirs, size)
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
@pytest.mark.parametrize(("module", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS])
def test_no_program_styles_its_output_if_nobody_wants_that(clone, tmp_path, module, command):
    if module == "engine":
        pytest.importorskip("mlx")
    argv = [sys.executable, "-P", "-m", module, *(["-C", str(clone)] if module == "bridge" else []), *command]
    env = {**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path)}
    env.pop("NO_COLOR", None)

    assert b"\x1b[" in on_a_terminal(argv, **env)
    for wish in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
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
    assert error.keys() == {"error", "code", "fix", "exit_code", "safe_to_retry"}
    assert error["error"]


SIZES = [
    *({"COLUMNS": size} for size in ("", "0", "1", "4", "19", "-3", "x", "²", "9" * 30)),
    *({"LINES": size} for size in ("0", "1", "x", "²")),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("err", [False, True])
def test_a_table_is_printed_whole_at_any_size_of_the_terminal(monkeypatch, capsys, size, err):
    with monkeypatch.context() as patch:  # pytest itself reads the size after the test
        for name, value in size.items():
            patch.setenv(name, value)
        out = screen.console(err=err)
        table = screen.Grid("name", "what it does")
        table.add_row("acceptance-bench", "Measure it.")
        out.print(table)
        assert 20 <= out.width < 10_000

    printed = capsys.readouterr()
    assert "Measure" in "".join((printed.err if err else printed.out).split())


@pytest.mark.long
@pytest.mark.parametrize("size", [{}, {"COLUMNS": "0", "LINES": "²"}], ids=str)
@pytest.mark.parametrize(("module", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS])
def test_no_size_of_the_terminal_ends_a_command(clone, tmp_path, module, command, size):
    if module == "engine":
        pytest.importorskip("mlx")
    argv = [sys.executable, "-P", "-m", module, *(["-C", str(clone)] if module == "bridge" else []), *command]
    printed = on_a_terminal(
        argv, size=(0, 0) if "LINES" in size else (1, 1), **{**os.environ, "HOME": str(tmp_path), **size}
    )
    assert b"bug" not in printed
    assert printed.strip()


INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(name, *rest):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""
IMPORTED = [
    ("bridge", ["presets"], ("click", "bridge.common.environment", "bridge.cli.presets", "pydantic")),
    ("bridge", ["run", "noop"], ("bridge.cli.run", "bridge.client", "bridge.bus.wire")),
    ("bridge", ["--version"], ("importlib.metadata",)),
    ("runner", ["check"], ("click", "bridge.system.signals", "runner.cli.looking", "runner.policy.model")),
    ("engine", ["models"], ("click", "engine.commit", "engine.cli.models", "engine.errors")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "command", "at"),
    [(module, command, at) for module, command, names in IMPORTED for at in names],
)
def test_a_program_that_is_interrupted_while_it_starts_shows_no_traceback(tmp_path, module, command, at):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPT_AT": at}
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *command], env=env, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() in ("", "interrupted")
