"""One version, in each place that states it."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_citation_states_it():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION


def test_changelog_begins_with_it():
    assert re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == VERSION
