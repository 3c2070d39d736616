"""What agents and the registry read about the MCP server is what the server is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import click
import pytest

from bridge.cli import cli
from tests.repo.console import section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SKILL = (ROOT / "docs" / "skill" / "SKILL.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def configurations() -> list[list[str]]:
    """Return the command lines in the configurations that the page shows."""
    blocks = re.findall(r"```(json|toml|console)\n(.*?)```", section("Configuration", PAGE), re.DOTALL)
    found = []
    for kind, text in blocks:
        if kind == "console":
            found.append(text.partition(" -- ")[2].split())
            continue
        settings = json.loads(text) if kind == "json" else tomllib.loads(text)
        (servers,) = settings.values()
        found.append([servers["kakeya"]["command"], *servers["kakeya"]["args"]])
    return found


def test_there_is_a_configuration_for_each_agent():
    assert len(configurations()) == 6
    assert all(name in PAGE for name in ("Claude Code", "Codex", "Copilot", "Cursor"))


@pytest.mark.parametrize("words", configurations(), ids=" ".join)
def test_a_configuration_starts_the_server(words):
    program, *words = words
    assert program == "kakeya"
    context = cli.make_context("kakeya", words, obj={})
    name, command, rest = cli.resolve_command(context, cli.make_parser(context).parse_args(words)[1])
    assert name == "mcp"
    assert isinstance(command, click.Command)
    command.make_context(name, rest, parent=context)


def test_the_skill_has_the_form_that_agents_read():
    _, head, _ = SKILL.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields.keys() == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", fields["name"])
    assert 0 < len(fields["description"]) <= 1024
    assert len(SKILL.splitlines()) < 500


@pytest.mark.parametrize("line", re.findall(r"`(kakeya [^`]+)`", SKILL.partition("## Tools")[0]))
def test_a_command_of_the_skill_parses(line):
    words = re.sub(r"\bPRESET\b", "noop", line).split()[1:]
    context = cli.make_context("kakeya", words, obj={})
    name, command, rest = cli.resolve_command(context, cli.make_parser(context).parse_args(words)[1])
    assert command is not None
    command.make_context(name, rest, parent=context)


def test_the_registrys_rules_hold():
    """Those of schema 2025-12-11, and of the registry itself."""
    server = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    assert server["$schema"].endswith("/2025-12-11/server.schema.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert 0 < len(server["description"]) <= 100
    assert 0 < len(server["title"]) <= 100
    (package,) = server["packages"]
    assert server["version"] == package["version"] == PROJECT["version"]
    assert package["identifier"] == PROJECT["name"]
    assert package["registryType"] == "pypi"
    assert package["transport"] == {"type": "stdio"}
    # uvx runs the program that is called like the package.
    assert PROJECT["scripts"][package["identifier"]] == PROJECT["scripts"]["kakeya"]
    (with_extra,) = package["runtimeArguments"]
    assert (with_extra["name"], with_extra["value"]) == ("--with", "kakeya-bridge[mcp]")
    assert [argument["value"] for argument in package["packageArguments"]] == ["mcp"]
    assert f"mcp-name: {server['name']}" in PAGE
