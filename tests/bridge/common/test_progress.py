import io
import math
import re
import time

from rich.console import Console

from bridge.common.cli import progress
from bridge.common.cli.output import say
from tests.conftest import wait_for


def _lines(monkeypatch, capsys, work):
    monkeypatch.setattr(progress, "FIRST", 0.05)
    with progress.progress("decoding", "prompts") as (on_start, on_step):
        work(on_start, on_step)
    return capsys.readouterr()


def test_a_long_job_prints_plain_lines_at_a_falling_rate(monkeypatch, capsys):
    printed = []
    monkeypatch.setattr(progress, "say", lambda line: (printed.append(line), say(line)))

    def work(on_start, on_step):
        on_start(20)
        for _ in range(3):
            on_step()
        time.sleep(0.5)
        wait_for(lambda: printed)

    began = time.monotonic()
    said = _lines(monkeypatch, capsys, work)
    passed = time.monotonic() - began
    lines = said.err.splitlines()
    assert said.out == ""
    assert 1 <= len(lines) <= math.log2(passed / 0.05 + 1)  # after 0.05, 0.15, 0.35 s
    assert all(re.fullmatch(r"progress 3/20 prompts, \d+ s", line) for line in lines)


def test_a_short_job_prints_nothing(capsys):
    with progress.progress("decoding", "prompts") as (on_start, on_step):
        on_start(1)
        on_step()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_figures_are_bounded_but_the_last_ones_come():
    seen = []
    bounded = progress.Bounded(seen.append)
    for step in range(100):
        bounded(step, last=step == 99)
    assert seen == [0, 99]


def test_a_download_into_a_pipe_prints_plain_lines_with_sizes_and_times(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST", 0.01)
    printed = []
    monkeypatch.setattr(progress, "say", lambda line: (printed.append(line), say(line)))
    with progress.download(92_100_000, lambda: 1_250_000):
        wait_for(lambda: printed)
    said = capsys.readouterr()
    assert said.out == ""
    assert all(re.fullmatch(r"progress 1\.2 MB of 92\.1 MB, \d+ s", line) for line in said.err.splitlines())
    assert "\r" not in said.err


def test_a_download_on_a_terminal_draws_a_bar(monkeypatch):
    screen = Console(force_terminal=True, file=io.StringIO(), width=100)
    monkeypatch.setattr(progress, "rich_console", lambda **_: screen)
    with progress.download(92_100_000, lambda: 1_250_000):
        wait_for(lambda: "1.2/92.1 MB" in screen.file.getvalue())
