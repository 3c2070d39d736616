"""Bytes that are no text are refused by name in every text option and file; names of files may hold any bytes."""

import subprocess
import sys

import click
import pytest

from bridge.cli import cli as kakeya
from engine.cli import cli as engine
from runner.cli import cli as runner

PROGRAMS = {"bridge": kakeya, "runner": runner, "engine": engine}
# Options that name a file, a folder, a repository or something that may be one. Their bytes need not be text.
REFERENCES = {
    "--model", "--draft", "--target", "--cluster", "--prompts", "--check", "--remote", "--key", "-C", "--ref", "--bus",
    "--python",
}  # fmt: skip
BYTES = b"a\xff"


def commands(command, path=()):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))
    yield path, command


ALL = [(program, path, command) for program, cli in PROGRAMS.items() for path, command in commands(cli)]


@pytest.mark.parametrize(("program", "path", "command"), ALL, ids=lambda x: x if isinstance(x, str) else None)
def test_every_text_option_refuses_bytes(program, path, command):
    for param in command.params:
        if not isinstance(param, click.Option) or param.is_flag or isinstance(param.type, click.Path):
            continue
        if REFERENCES.intersection(param.opts):
            param.type.convert(BYTES.decode("utf-8", "surrogateescape"), param, None)
            continue
        with pytest.raises(click.BadParameter):
            param.type.convert(BYTES.decode("utf-8", "surrogateescape"), param, None)


def test_the_help_says_what_each_option_does():
    without = [
        (program, *path, *param.opts)
        for program, path, command in ALL
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert without == []


def said(program, *args, stdin=b""):
    argv = [sys.executable, "-P", "-m", program, *args]
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=300, check=False)
    return done.returncode, " ".join(done.stderr.decode("utf-8", "replace").split())


@pytest.mark.rows(4)
@pytest.mark.parametrize(
    ("program", "args"),
    [
        ("engine", ["generate", "--prompt", "a", "--stop", BYTES]),
        ("engine", ["generate", "--prompt", BYTES]),
        ("bridge", ["cancel", "x", "--reason", BYTES]),
        ("runner", ["maintenance", "on", "--reason", BYTES]),
        ("engine", ["generate", "--model", "tiny-chat", "--prompt", "a", "--system", BYTES]),
        ("engine", ["generate", "--prompt", "a", "--kv", BYTES]),
        ("engine", ["serve", "--host", BYTES]),
        ("engine", ["serve", "--allow-origin", BYTES]),
        ("bridge", ["run", "demo", "--requested-by", BYTES]),
        ("bridge", ["run", "demo", "-p", b"a=\xff"]),
        ("bridge", ["run", "demo", "--label", BYTES]),
        ("bridge", ["run", "demo", "--prefix", BYTES]),
        ("runner", ["init", "--bus", "x", "--id", BYTES]),
    ],
)
def test_bytes_in_an_argument_are_named(program, args):
    code, text = said(program, *args)
    assert code == 2, text
    assert "UTF-8" in text
    assert "bug" not in text


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    "args",
    [
        ["generate", "--model", "tiny-chat", "--prompt-file", "FILE"],
        ["serve", "--api-key-file", "FILE"],
        ["generate"],
        ["bench", "native", "--prompts", "FILE"],
        ["eval", "kv-quant", "--text", "FILE"],
        ["codec", "rd", "--model", "tiny", "--text", "FILE"],
    ],
)
def test_bytes_in_a_file_are_named(args, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(BYTES * 20)
    code, text = said("engine", *(str(file) if each == "FILE" else each for each in args), stdin=BYTES)
    assert code == 2, text
    assert "utf-8" in text.lower()
    assert "template" not in text
