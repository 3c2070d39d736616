"""Runs of a kind that a preset declares: side by side, on web pages, and for an agent."""

from __future__ import annotations

import html
import json
import re

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("mcp", reason="needs the extra [mcp]")

from click.testing import CliRunner

from bridge.cli import cli
from bridge.client import Client
from bridge.mcp import calls, models
from tests.bridge.web.conftest import Web

pytestmark = pytest.mark.bus

JOB = """import hashlib, json, os, pathlib, sys
path = pathlib.Path("results/research/mine.json")
path.parent.mkdir(parents=True, exist_ok=True)
value = float(sys.argv[1])
path.write_text(json.dumps(dict(kind="mine", wall_s=value, samples=[value] * 3, ops=7)))
print("kakeya-file", os.environ["KAKEYA_RUN_ID"], hashlib.sha256(path.read_bytes()).hexdigest())
"""
CLAIMS = [
    {"name": "wall_s", "pointer": "/wall_s", "unit": "s", "better": "lower", "samples": "/samples"},
    {"name": "ops", "pointer": "/ops", "unit": "1/s", "better": "higher"},
]
CHECKED = (
    "mine: schema, 1 claim (wall_s) derived again from 3 samples, 1 claim (ops) as the run wrote it, "
    "file vouched for by the run"
)


@pytest.fixture
def branches(clone, keyed, presets, monkeypatch, git, tmp_path):
    """Signed answers of two runs, of which the second took twice as long."""
    (tmp_path / "job.py").write_text(JOB)
    folder = presets(job={
        "steps": [{"argv": ["${ENV:KAKEYA_MAC_PYTHON}", str(tmp_path / "job.py"), "{n}"]}], "gate": "mine",
        "params": {"n": {"type": "int", "min": 1, "max": 9}}, "collect": ["results/research/mine.json"],
        "reports": {"mine": {"schema": "mine.json", "claims": CLAIMS}},
    })  # fmt: skip
    (folder / "mine.json").write_text(json.dumps({"type": "object", "required": ["kind", "samples"]}))
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))
    monkeypatch.chdir(clone)
    git(clone, "config", "kakeya.publicKey", str(keyed.key()))
    sent = [Client(clone).run("job", {"n": n}).branch for n in (2, 4)]
    keyed.handle(preset_folder=str(folder))
    return sent


@pytest.mark.long
def test_they_are_the_same_figures_for_every_reader(branches, clone):
    first, second = branches

    def kakeya(*args):
        done = CliRunner().invoke(cli, ["-C", str(clone), *args], standalone_mode=False)
        assert not done.return_value, done.output
        return done.stdout

    # Side by side.
    compared = kakeya("report", first, second, "--markdown").replace("\\", "")
    rows = [re.split(r" *\| *", line)[1:-1] for line in compared.splitlines() if line.startswith("| ")]
    assert ["figure", "of", "run 1", "run 2", "run 2 to run 1"] in rows
    assert [row[2:] for row in rows if row[0] == "wall_s" and len(row) == 5] == [["2", "4", "2x"]]
    assert [row[2:] for row in rows if row[0] == "ops" and len(row) == 5] == [["7", "7", "equal"]]
    (figures,) = [
        table for table in json.loads(kakeya("report", first, second, "--json"))["tables"]
        if table["title"] == "Figures side by side"
    ]  # fmt: skip
    assert [row[2:] for row in figures["rows"]] == [[2.0, 4.0, "2x"], [7.0, 7.0, "equal"]]
    assert "asked: parameters | n=2 | n=4" in compared

    # On pages.
    web = Web(Client(clone))
    web.page()
    while web.figures.step():
        pass
    for branch in branches:
        page = html.unescape(web.page(f"/run/{branch}"))
        assert all(words in page for words in ("ACCEPTED, signed by one's key", CHECKED, "lower is better"))
    trends = re.sub(r"<[^>]*>", " ", html.unescape(web.page("/trends")))
    last = 4 if second > first else 2  # requests of the same second are in the order of their names
    assert re.search(rf"wall_s\s+job\s+{last}\s+ACCEPTED, signed by one's key", trends)
    assert "ops" in web.page("/trends?name=ops")

    # For an agent.
    bus = calls.BusClient(str(clone), "origin")
    for branch in branches:
        standing = calls.standing(bus.find(branch))
        assert (standing.state, standing.gate, standing.voucher) == (
            "succeeded", "ACCEPTED", "signed by one's key",
        )  # fmt: skip
        fetched = calls.fetch(bus, models.Fetch(request=branch, out=f"results/{branch[-6:]}"))
        assert (fetched.gate, fetched.voucher) == ("ACCEPTED", "signed by one's key")
        assert "results/research/mine.json" in fetched.untrusted_files
        # A reader of the folder has no preset.
        judged = json.loads(kakeya("gate", fetched.folder, "--kind", "mine", "--json"))
        assert (judged["verdict"], judged["notes"]) == (
            "ACCEPTED", [f"{fetched.folder}/results/research/mine.json: CHECKED: {CHECKED}"],
        )  # fmt: skip
    (edited,) = (clone / "results" / first[-6:]).glob("results/research/*.json")
    edited.write_text(edited.read_text().replace("2.0", "1.0"))
    done = CliRunner().invoke(cli, ["-C", str(clone), "gate", str(edited), "--json"], standalone_mode=False)
    assert (done.return_value, [each["code"] for each in json.loads(done.stdout)["violations"]]) == (
        5,
        ["EDITED"],
    )
