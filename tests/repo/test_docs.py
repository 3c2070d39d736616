"""The documents say what the programs do."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.gate.checks import CHECKS
from bridge.gate.codes import CODES
from bridge.manifest import parse_manifest
from bridge.reports.kinds import KINDS
from bridge.reports.models import schema
from runner.job.usage import BOUNDS

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("release/*.md"),
    *ROOT.glob("training/*.md"),
]
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


def test_the_reasons_in_the_protocol_are_those_that_the_runner_gives():
    listed = PROTOCOL.split("`reason.code` is for programs.", 1)[1].split("\n- ", 1)[0]
    codes = set(re.findall(r"`([a-z_]+)`", listed))
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "runner").rglob("*.py"))]
    named = r'(?:(?:Refusal|Unable)\(\s*|(?:\.end\(\s*|return \(?|Action\.\w+: \()State\.\w+, |Reason\(code=)"(\w+)"'
    given = {code for text in sources for code in re.findall(named, text)} | set(BOUNDS)

    assert len(given) > 30
    assert sorted(given - codes) == []
    # Other codes come from parsers of manifests and parameters, which the runner and the client share.
    parsers = [
        path
        for name in ("manifest.py", "presets/*.py", "common/*.py", "system/*.py")
        for path in (ROOT / "bridge").glob(name)
    ]
    parsed = {
        code for path in parsers for code in re.findall(r'"([a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    rest = {"untrusted_code", "interpreter", "models", "rejected", "incomplete"}
    assert sorted(codes - given - parsed - rest) == []


@pytest.mark.parametrize(
    ("script", "pages"),
    [
        ("build_cli.py", ["cli.md"]),
        ("build_context.py", ["decoding.md", "context.svg", "results/context-curve.json"]),
        ("build_presets.py", ["presets.md", "presets-commands.txt"]),
        ("build_rules.py", ["evidence.md"]),
        ("build_skill.py", ["skill/SKILL.md"]),
    ],
)
def test_generated_pages_are_current(script, pages, tmp_path):
    for name in (script, *pages):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / "docs" / name).read_bytes())

    subprocess.run([sys.executable, str(tmp_path / script)], check=True, cwd=tmp_path)

    for page in pages:
        written = (tmp_path / page).read_text(encoding="utf-8")
        assert written == (ROOT / "docs" / page).read_text(encoding="utf-8"), f"{page}: run `make docs`"


def test_links_between_documents_lead_somewhere():
    pages = PAGES
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]

    assert len(links) > 10
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def anchors(text: str) -> set[str]:
    """Return the names by which a page's headings are linked, as GitHub makes them."""
    heads = re.findall(r"^#{1,6} (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_to_headings_lead_to_one():
    pages = [path for path in PAGES if path.name != "CHANGELOG.md"]
    links = [
        (page, path, anchor)
        for page in pages
        for path, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    ]

    assert len(links) > 50
    missing = [
        f"{page.name}: {path}#{anchor}"
        for page, path, anchor in links
        for to in [page.parent / path if path else page]
        if to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_the_schema_is_that_of_the_models():
    written = json.loads((ROOT / "bridge" / "schemas" / "report-3.json").read_text(encoding="utf-8"))

    assert written == schema()


EVIDENCE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")


def test_every_claim_of_the_published_reports_is_described():
    reports = [
        json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "docs/results").glob("*.json")
    ]
    names = {claim["name"] for report in reports for claim in report.get("claims", [])}
    described = set(re.findall(r"^\| `(\w+)` \|", EVIDENCE.split("## Claims", 1)[1], re.MULTILINE))

    assert len(names) > 15
    assert sorted(names - described) == []


def test_every_kind_and_code_is_described():
    codes = set(re.findall(r"^\| `([A-Z_0-9]+)` \| (?:REJECTED|INCOMPLETE|NOTE) \|", EVIDENCE, re.MULTILINE))

    assert [kind for kind in KINDS if f"`{kind}`" not in EVIDENCE] == []
    assert codes == CODES.keys()
    assert {check.code for check in CHECKS} <= codes


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_each_place_that_the_architecture_names_is_there():
    named = set(re.findall(r"`((?:bridge|runner|engine|presets)/[\w/.]*)`", ARCHITECTURE))

    assert len(named) > 50
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_each_part_of_the_engine_in_the_drawing_is_there():
    """The drawing of the decoding loop names folders and modules below engine/, or below engine/dflash/."""
    drawing = ARCHITECTURE.split("## From a prompt to tokens", 1)[1].split("```")[1]
    named = set(re.findall(r"\b(?:[a-z]+/)+(?:[a-z]+\b)?", drawing))
    roots = (ROOT / "engine", ROOT / "engine" / "dflash")

    assert len(named) > 8
    there = {
        name for name in named for root in roots if (root / name).is_dir() or (root / f"{name}.py").is_file()
    }
    assert sorted(named - there) == []


@pytest.mark.parametrize("package", ["bridge", "runner", "engine"])
def test_each_folder_has_a_line_in_the_architecture(package):
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}

    assert [name for name in sorted(folders) if f"`{package}/{name}/`" not in ARCHITECTURE] == []


def test_the_readme_and_the_docs_are_short_enough_to_be_read():
    counter = runpy.run_path(str(ROOT / "docs" / "count_words.py"))
    words = counter["words"]()

    assert words["README.md"] <= counter["README_WORDS"] == 1_500
    assert sum(words.values()) <= counter["WORDS"] == 52_000
    assert words.keys() >= {"requester.md", "agents.md", "operations.md", "researcher.md", "server.md"}
    assert counter["design_words"]() <= counter["DESIGN_WORDS"] == 5_000
