"""The pages of the roles are followed literally, command by command, from a clean home."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.repo import console
from tests.repo.programs import good

HAS_ENGINE = importlib.util.find_spec("mlx_lm") is not None


def page(name: str) -> str:
    return (console.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _programs(monkeypatch):
    """The programs of this installation, as a reader's shell finds them."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_output_and_codes_are_read_with_the_commands():
    text = "```console\n$ false   # ends with 1\n$ echo a; \\\n  echo b\na\n...\nb\n```\n"

    found = console.steps(text)

    assert [(step.code, step.shown) for step in found] == [(1, ()), (0, ("a", "b"))]
    assert console.follow(found, console.ROOT).count("@@") == 2


@pytest.mark.parametrize("text", ["$ false\n", "$ true  # ends with 1\n", "$ echo a\nb\n"])
def test_a_page_that_says_something_else_is_noticed(text, tmp_path):
    with pytest.raises(AssertionError):
        console.follow(console.steps(f"```console\n{text}```\n"), tmp_path)


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_requesters_page_can_be_followed(clone, runners):
    runners.start()

    printed = console.follow(
        console.steps(console.section("From a request to a verified answer", page("requester"))), clone
    )

    assert "succeeded" in printed
    assert (clone / "kakeya-results" / "page.html").is_file()


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not installed")
def test_the_researchers_page_can_be_followed(tree, tmp_path):
    good("git", "clone", "--quiet", tree, "clone", cwd=tmp_path)

    console.follow(console.steps(page("researcher")), tmp_path / "clone")


@pytest.mark.bus
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(not HAS_ENGINE, reason="the engine is not installed")
def test_the_owners_page_can_be_followed(bus, client, tmp_path):
    run = client.run("noop", {})
    todo = console.steps(console.section("Start a runner", page("operations")))

    printed = console.follow(todo, tmp_path, replaced={"git@example.com:team/bus.git": str(bus)})

    assert "BEGIN PUBLIC KEY" in printed
    assert run.wait(timeout=60).state == "succeeded"
