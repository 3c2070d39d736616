"""The documents say what the programs do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.evidence.kinds import schema
from bridge.evidence.names import KINDS, OF_KIND
from bridge.manifest import parse_manifest

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def examples(heading: str) -> list[str]:
    section = PROTOCOL.split(f"### `{heading}`", 1)[1].split("\n### ", 1)[0].split("\n## ", 1)[0]
    return re.findall(r"```json\n(.*?)```", section, re.DOTALL)


def test_the_manifests_in_the_protocol_are_valid():
    versions = [parse_manifest(text).schema_version for text in examples(wire.REQUEST)]

    assert versions == [2, 1]


@pytest.mark.parametrize(
    ("path", "model"),
    [(wire.STATE, wire.StateFile), (wire.CANCEL, wire.CancelFile), (wire.RESULT, wire.Result)],
)
def test_the_files_in_the_protocol_have_the_fields_of_the_program(path, model):
    (text,) = examples(path)

    written = model.model_validate(json.loads(text))

    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required <= set(json.loads(text))
    assert written.schema_version == 2


def test_what_the_gate_says_is_described_field_by_field():
    section = PROTOCOL.split(f"### `{wire.RESULT}`", 1)[1].split("\n### ", 1)[0]

    fields = [*wire.Gate.model_fields, *wire.Violation.model_fields]

    assert [name for name in fields if f"`{name}`" not in section] == []


def test_every_reason_that_the_runner_gives_is_in_the_protocol():
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "runner").rglob("*.py"))]
    given = {code for text in sources for code in re.findall(r'Refusal\(\s*"([a-z_]+)"', text)}

    assert len(given) > 10
    assert [code for code in sorted(given) if f"`{code}`" not in PROTOCOL] == []


@pytest.mark.parametrize("script", ["build_cli.py", "build_presets.py", "build_rules.py"])
def test_generated_pages_are_current(script, tmp_path):
    page = {"build_cli.py": "cli.md", "build_presets.py": "presets.md", "build_rules.py": "evidence.md"}[
        script
    ]
    (tmp_path / script).write_bytes((ROOT / "docs" / script).read_bytes())
    (tmp_path / page).write_bytes((ROOT / "docs" / page).read_bytes())

    subprocess.run([sys.executable, str(tmp_path / script)], check=True, cwd=tmp_path)

    assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_links_between_documents_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]

    assert len(links) > 10
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_the_schema_is_that_of_the_models():
    written = json.loads((ROOT / "bridge" / "schemas" / "report-3.json").read_text(encoding="utf-8"))

    assert written == schema()


def test_every_claim_that_the_gate_can_take_again_is_described():
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    names = {name for names in OF_KIND.values() for name in names}

    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
