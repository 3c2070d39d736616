"""What pages, workflows, scripts and messages name is there: files, targets of make, commands and their options."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import pytest

from bridge.cli import cli as kakeya
from engine.cli import cli as kakeya_engine
from runner.cli import cli as kakeya_runner
from tests.repo import console

ROOT = console.ROOT
PROGRAMS: dict[str, click.Command] = {
    "kakeya": kakeya, "kakeya-engine": kakeya_engine, "kakeya-runner": kakeya_runner,
}  # fmt: skip
# The changelog also names what is gone.
FOLDERS_OF_PAGES = (ROOT / "docs", ROOT / "release", ROOT / "training")
PAGES = [
    path
    for path in (*ROOT.glob("*.md"), *(page for folder in FOLDERS_OF_PAGES for page in folder.rglob("*.md")))
    if path.name != "CHANGELOG.md"
]
PYTHON = [path for top in ("bridge", "runner", "engine") for path in (ROOT / top).rglob("*.py")]
SCRIPTS = [
    ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml",
    *(path for path in (ROOT / "release").rglob("*") if path.is_file() and path.suffix in {"", ".py"}),
    *(path for path in (ROOT / ".github").rglob("*") if path.is_file()),
]  # fmt: skip
FOLDERS = (
    "bridge",
    "runner",
    "engine",
    "presets",
    "docs",
    "tests",
    "benchmarks",
    "training",
    "release",
    r"\.github",
    r"\.ci",
)
# A path below one of the project's folders, as a whole: not a part of a branch, a URL or another path.
PLACE = re.compile(rf"(?<![\w./$}}-])(?:/path/to/kakeya-bridge/)?((?:{'|'.join(FOLDERS)})/(?:[\w.*-]+/?)*)")
# Where a workflow checks the project out, and what a page tells readers to add.
CHECKOUTS = re.compile(r"\b(?:one|second folder)/")
ADDED = {"presets/time-sort.yaml"}
MADE = {"release/bin/python", "docs/build_"}  # by `make dist`, below build/; the beginning of a pattern


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def places(path: Path) -> set[str]:
    found = PLACE.findall(CHECKOUTS.sub("", text_of(path)))
    return {place.rstrip(".") for place in found} - ADDED - MADE


def by_file(paths: Iterable[Path], missing: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """What is missing, by the file that names it."""
    return {str(path.relative_to(ROOT)): names for path in paths if (names := missing(path))}


def test_named_files_and_folders_are_there():
    def missing(path: Path) -> list[str]:
        return sorted(place for place in places(path) if not any(ROOT.glob(place.rstrip("/"))))

    assert by_file([*PAGES, *SCRIPTS], missing) == {}


def test_files_are_found_in_pages_workflows_and_the_makefile():
    assert "release/weights" in places(ROOT / "docs" / "install.md")
    assert "release/requirements/release.txt" in places(ROOT / "Makefile")
    assert "release/requirements/try" in places(ROOT / ".github" / "workflows" / "versions.yaml")
    assert "release/build" in places(ROOT / ".github" / "workflows" / "release.yaml")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The project without its environment, so that each target says all that it would do."""
    folder = tmp_path_factory.mktemp("tree")
    for path in ROOT.iterdir():
        if path.name not in {".venv", "build", "dist", ".git"}:
            (folder / path.name).symlink_to(path)
    return folder


TARGETS = sorted(
    set(re.search(r"^\.PHONY: (.*)$", text_of(ROOT / "Makefile"), re.MULTILINE)[1].split())  # type: ignore[index]
)


@pytest.mark.rows(4)
@pytest.mark.parametrize("target", TARGETS)
def test_make_has_all_that_a_target_needs(target, tree):
    done = subprocess.run(["make", "-n", target], cwd=tree, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def spans(path: Path) -> Iterator[str]:
    """Yield what a file shows as commands: in backquotes and, in a page, after a prompt."""
    text = text_of(path)
    yield from re.findall(r"`([^`\n]+)`", text)
    for language in ("console", "sh", "bash"):
        for block in console.blocks(text, language):
            yield from (line.removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines())


def calls(path: Path, programs: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the words of each call of a program, from its name to the next operator of the shell."""
    for span in spans(path):
        if "[a-z" in span:
            continue  # a regular expression
        try:
            words = shlex.split(re.sub(r"[\[\](){}]", " ", span).replace("...", ""), comments=True)
        except ValueError:
            continue
        found: list[str] = []
        for word in [*words, ";"]:
            if word in {"&&", "||", ";", "|", "&", ">", "2>"}:
                if found:
                    yield found
                found = []
            elif found or Path(word).name in programs:
                found.append(Path(word).name if not found else word)


def test_named_targets_of_make_exist():
    def missing(path: Path) -> list[str]:
        named = [words[1] for words in calls(path, ("make",)) if len(words) > 1]
        return [name for name in named if name.isalpha() and name.islower() and name not in TARGETS]

    assert by_file([*PAGES, *SCRIPTS], missing) == {}


def unknown(words: list[str]) -> str | None:
    """Return what of a call the program does not know: a command or an option; None if it knows all."""
    command, seen, rest = PROGRAMS[words[0]], [words[0]], words[1:]
    known = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    known |= {"-h", "--help", "--version"}
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word == "--":
            return None
        elif word.startswith("-") and word != "-":
            name = word.split("=")[0]
            if name not in known:
                return f"{' '.join(seen)}: {name}"
            option = next((o for o in command.params if name in o.opts), None)
            skip = (
                isinstance(command, click.Group)
                and isinstance(option, click.Option)
                and not option.is_flag
                and "=" not in word
            )
        elif isinstance(command, click.Group):
            if not re.fullmatch(r"[a-z0-9-]+", word):
                return None  # a placeholder, or a sentence
            context = click.Context(command, info_name=words[0])
            found = command.get_command(context, word)
            if found is None:
                return f"{' '.join(seen)}: {word}"
            command = found
            seen.append(word)
            known |= {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    return None


# Not calls: the subjects of commits on the bus, and the words before a version.
SENTENCES = re.compile(r"kakeya (state|presence) \d")


def test_named_commands_and_options_exist():
    def missing(path: Path) -> list[str]:
        named = [words for words in calls(path, tuple(PROGRAMS)) if not SENTENCES.match(" ".join(words))]
        return [fault for words in named if (fault := unknown(words))]

    assert by_file([*PAGES, *SCRIPTS, *PYTHON], missing) == {}


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("kakeya run noop --wait 5m", None),
        ("kakeya -C folder run noop -p a=b", None),
        ("kakeya runs noop", "kakeya: runs"),
        ("kakeya run --now", "kakeya run: --now"),
        ("kakeya-engine codec rd --effort best", None),
        ("kakeya-engine codec rates", "kakeya-engine codec: rates"),
    ],
)
def test_what_is_missing_is_named(line, missing):
    assert unknown(line.split()) == missing
