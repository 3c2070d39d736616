"""The manual pages that a wheel brings: one for each program and command, in the words of its help."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from bridge.cli import cli as kakeya
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner
from tests.repo.programs import good
from tests.system import program

ROOT = Path(__file__).parents[2]
PROGRAMS = {"kakeya": kakeya, "kakeya-runner": kakeya_runner, "kakeya-engine": kakeya_engine}
pytest.importorskip("click_man", reason="without click-man, no page is made: make test installs it")


def commands(name, command):
    """Yield each command with its full name, that of its page, and that of a program too."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            yield from commands(f"{name} {inner}", command.get_command(context, inner))


COMMANDS = dict(each for name, group in PROGRAMS.items() for each in commands(name, group))
PAGES = {f"{name.replace(' ', '-')}.1" for name in COMMANDS}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Make the pages of this checkout, and read them."""
    folder = tmp_path_factory.mktemp("man")
    good(sys.executable, ROOT / "release" / "man_pages.py", folder, "1.2.3", cwd=folder)
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def words(text):
    """Return the words of a help or of a page, without what only one of them has."""
    text = (
        re.sub(r"\\f[BP]|\\&|^\.\w+.*$", " ", text, flags=re.MULTILINE)
        .replace(r"\-", "-")
        .replace(r"\e", "\\")
    )
    return text.replace("`", " ").split()


def test_there_is_a_page_for_each_program_and_command(pages):
    assert pages.keys() == PAGES
    assert len(PAGES) > 50


def test_each_page_is_one_that_man_reads_and_has_no_colours(pages):
    for name, text in pages.items():
        title, *lines = text.splitlines()
        assert re.fullmatch(r'\.TH "[A-Z0-9 -]+" "1" " " "1\.2\.3" "[a-z0-9 -]+ Manual"', title), name
        assert [line for line in lines if re.match(r"[.'](?!(SH [A-Z]+|PP|TP|B kakeya.*)$)", line)] == [], (
            name
        )
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), name
        assert re.search(r"^\.SH NAME\n\S+ \\- \S.*[^.]$", text, re.MULTILINE), name


def test_no_word_of_a_help_is_lost(pages):
    for name, command in COMMANDS.items():
        text = words(pages[f"{name.replace(' ', '-')}.1"])
        wanted = [
            command.help or "",
            *(each.help or "" for each in command.params if not getattr(each, "hidden", True)),
        ]
        assert {word for each in wanted for word in words(each)} - {*text} == set(), name


def test_a_group_lists_its_commands_with_their_lines(pages):
    assert "\\fBcompletion\\fP\n  Print the completion script for a shell\n" in pages["kakeya.1"]
    assert "\\fBdrafter\\fP" in pages["kakeya-engine-train.1"]


def test_a_line_of_a_help_is_never_a_request_of_roff():
    sys.path.insert(0, str(ROOT / "release"))
    try:
        from man_pages import roff  # noqa: PLC0415 - a program, not a package
    finally:
        sys.path.pop(0)
    assert roff(".kakeya/presets holds\n'it' and \\n `-p K`") == (
        "\\&.kakeya/presets holds\n\\&'it' and \\en \\fB\\-p K\\fP"
    )


@pytest.mark.skipif(not program("groff"), reason="no groff")
def test_groff_finds_no_mistake_in_them(pages):
    for name, text in pages.items():
        argv = ["groff", "-man", "-Tutf8", "-ww", "-z"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
        # A long word leaves a line ragged, which is no mistake.
        assert re.sub(r".*warning.*(cannot adjust|can't break) line.*\n", "", done.stderr) == "", name


@pytest.mark.long
def test_a_wheel_has_them_where_installers_put_them_for_man(pages, wheel):
    with zipfile.ZipFile(wheel) as archive:
        brought = {name: archive.read(name).decode() for name in archive.namelist() if ".data/data/" in name}
    found = {name.partition(".data/data/share/man/man1/")[2]: text for name, text in brought.items()}
    assert found.keys() == PAGES
    assert found["kakeya-run.1"].replace("0.1.0", "1.2.3") == pages["kakeya-run.1"]
