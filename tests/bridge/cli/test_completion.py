"""The completion scripts, in the shells that they are for: what the tabulator key offers."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system import program

BIN = Path(sys.executable).parent
PROGRAMS = ("kakeya", "kakeya-runner", "kakeya-engine")
# What stands on the line, and some of what completes its last word.
LINES = {
    "kakeya ru": {"run"},
    "kakeya completion ": {"bash", "zsh", "fish"},
    "kakeya run --wa": {"--wait"},
    "kakeya run k3-native-baseline -p n_": {"n_samples="},
    "kakeya run kv-co": {"kv-codec-rd"},
    "kakeya -C . presets no": {"noop"},
    "kakeya-runner se": {"serve", "setup"},
    "kakeya-runner install --y": {"--yes"},
    "kakeya-engine bench ": {"native", "spec", "verify-l"},
    "kakeya-engine eval pass-at-1 --mo": {"--model"},
}
lines = pytest.mark.parametrize(("line", "wanted"), LINES.items(), ids=LINES)


@pytest.fixture
def scripts(tmp_path):
    """Write the scripts of all programs for a shell, and return an environment that finds the programs."""

    def write(shell):
        for name in PROGRAMS:
            script = output(
                BIN / "kakeya", "completion", shell, "--program", name, cwd=tmp_path, env=os.environ
            )
            (tmp_path / f"{name}.{shell}").write_text(script)
        path = f"{BIN}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "ZDOTDIR": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}

    return write


def output(*argv, cwd, env):
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=True).stdout


@lines
@pytest.mark.rows(2)
def test_bash_completes(scripts, tmp_path, line, wanted):
    name, *words = line.split(" ")
    script = (
        f'source "$1.bash"; COMP_WORDS=("$@"); COMP_CWORD={len(words)}; "_${{1//-/_}}_completion" "$1"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    shown = output("bash", "-c", script, "bash", name, *words, cwd=tmp_path, env=scripts("bash"))
    assert wanted <= {*shown.splitlines()}


@pytest.mark.skipif(not program("fish"), reason="no fish")
@lines
@pytest.mark.rows(2)
def test_fish_completes(scripts, tmp_path, line, wanted):
    script = f"source {line.split()[0]}.fish; complete -C '{line}'"
    shown = output("fish", "--no-config", "-c", script, cwd=tmp_path, env=scripts("fish"))
    assert wanted <= {each.split("\t")[0] for each in shown.splitlines()}


@pytest.mark.skipif(not program("fish"), reason="no fish")
def test_fish_shows_what_stands_behind_a_comma(scripts, tmp_path):
    script = "source kakeya.fish; complete -C 'kakeya run --wa'"
    shown = output("fish", "--no-config", "-c", script, cwd=tmp_path, env=scripts("fish"))
    assert "or for at most DUR" in shown


@pytest.mark.skipif(not program("zsh"), reason="no zsh")
@lines
@pytest.mark.rows(2)
def test_zsh_completes(scripts, tmp_path, line, wanted):
    env = scripts("zsh")
    name = line.split()[0]
    (tmp_path / ".zshrc").write_text(
        f"autoload -U compinit; compinit -u -D; source {name}.zsh; setopt no_beep; PS1='READY> '\n"
    )
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-i"], env)
    try:
        read_until(terminal, lambda text: "READY> " in text)
        os.write(terminal, f"{line}\t\t".encode())
        read_until(terminal, lambda text: wanted <= {*text.split()})
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal, good, seconds=60):
    """Read what a terminal shows until it is good."""
    text, end = "", time.monotonic() + seconds
    while not good(text):
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 65536).decode(errors="replace")
    return text
