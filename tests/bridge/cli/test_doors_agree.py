"""Every door says the same of one answer, whoever signed it: none shows as good what verify refuses."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")
pytest.importorskip("mcp", reason="needs the extra [mcp]")

from click.testing import CliRunner

from bridge.bus import wire
from bridge.cli import cli
from bridge.client import Client
from bridge.mcp import calls, models
from tests.bridge.web.conftest import Web

pytestmark = pytest.mark.bus

REFUSED = "does not hold"
GATED = {"steps": [{"argv": ["/bin/true"]}], "collect": ["results/research/x.json"], "gate": "reports"}


@pytest.fixture
def doors(clone, git, monkeypatch, tmp_path):
    """Return what each door says of a request, as `{door: text}`, with a key pinned or none."""

    def kakeya(*args):
        done = CliRunner().invoke(cli, ["-C", str(clone), *args], standalone_mode=False)
        code = done.return_value if done.exception is None else int(getattr(done.exception, "exit_code", 70))
        return int(code or 0), done.output

    def look(branch, key=None):
        git(clone, "config", "--unset-all", "kakeya.publicKey") if git(
            clone, "config", "--get", "--default", "", "kakeya.publicKey"
        ) else None
        if key:
            git(clone, "config", "kakeya.publicKey", str(key))
        web = Web(Client(clone))
        bus = calls.BusClient(str(clone), "origin")
        page = html.unescape(web.page(f"/run/{branch}"))
        codes, said = {}, {}
        # The list fetches, and `verify` reads what was fetched last.
        said["list"] = next(line for line in kakeya("list")[1].splitlines() if branch in line)
        for door in ("verify", "wait", "status", "report"):
            codes[door], said[door] = kakeya(door, branch)
        codes["fetch"], said["fetch"] = kakeya(
            "fetch", branch, "--out", str(tmp_path / f"out-{len(list(tmp_path.iterdir()))}")
        )
        said["markdown"] = kakeya("report", branch, "--markdown")[1]
        said["mcp list"] = next(
            row for row in calls.recent(bus, models.Recent()).requests if row.branch == branch
        ).verified
        standing = calls.standing(bus.find(branch))
        said["mcp"] = f"{standing.state} {standing.verified} {standing.gate} {standing.voucher}"
        codes["mcp"] = standing.exit_code
        said["web"] = " ".join(re.findall(r'class="badge [^"]*">[^<]*', page))
        rows = re.findall(r"<tr>.*?</tr>", html.unescape(web.page()), re.DOTALL)
        said["web list"] = " ".join(
            re.findall(r'class="badge [^"]*">[^<]*', next(row for row in rows if branch in row))
        )
        return codes, said

    return look


def refused_everywhere(codes, said):
    """Expect that no door shows anything good or accepted, and that verify ends with its own conclusion."""
    for door, text in said.items():
        assert "ACCEPTED" not in text.rpartition("FAIL")[2], (door, text)
        assert "badge good" not in text, (door, text)
    assert {codes[door] for door in ("verify", "wait", "mcp", "report", "fetch")} == {1}
    assert REFUSED in said["list"]
    assert said["mcp list"] == REFUSED
    assert "NOT verified" in said["wait"]
    assert "NOT verified" in said["mcp"]
    assert said["verify"].rstrip().splitlines()[-1].startswith("NOT verified")
    assert REFUSED in said["web list"]


def vouched_everywhere(codes, said, words, code, *doors):
    assert {code for door, code in codes.items() if door not in ("verify", "status", "report")} == {code}, (
        codes
    )
    assert codes["verify"] == 0
    for door in doors or (
        "verify",
        "wait",
        "status",
        "report",
        "markdown",
        "list",
        "mcp list",
        "web",
        "web list",
    ):
        assert words in re.sub(r"\\|\n +| +\n", "", said[door]), (door, said[door])
    assert said["verify"].rstrip().splitlines()[-1].startswith("verified: ")


@pytest.mark.long
def test_an_accepted_answer_in_every_state_of_its_signature(client, keyed, doors, forger, clone, tmp_path):
    run = client.run("kv-codec-rd", {"n_vectors": 64, "dim": "64"})
    keyed.handle()

    codes, said = doors(run.branch, keyed.key())
    vouched_everywhere(codes, said, "ACCEPTED, signed by one's key", 0)
    assert "badge good" in said["web list"]
    codes, said = doors(run.branch)
    vouched_everywhere(
        codes,
        said,
        "ACCEPTED, signed by a key that is not pinned here",
        0,
        "verify",
        "wait",
        "mcp list",
        "web",
    )
    refused_everywhere(*doors(run.branch, keyed.key("two")))

    evidence = json.loads(forger.read(run.branch, wire.EVIDENCE))
    whole = forger.tip(run.branch)
    evidence["signatures"][0]["sig"] = "00" * 64
    forger.put(run.branch, {wire.EVIDENCE: json.dumps(evidence).encode()})
    refused_everywhere(*doors(run.branch, keyed.key()))
    forger.put(run.branch, {wire.EVIDENCE: forger.git.text("show", f"{whole}:{wire.EVIDENCE}").encode()})
    report = "results/research/kv_codec_rd.json"
    forger.put(run.branch, {report: forger.read(run.branch, report).replace(b"gaussian", b"Gaussian")})
    refused_everywhere(*doors(run.branch, keyed.key()))
    refused_everywhere(*doors(run.branch))


@pytest.mark.long
def test_an_unsigned_answer_is_called_the_same_by_run_and_gate(client, keyed, doors, clone, tmp_path):
    run = client.run("kv-codec-rd", {"n_vectors": 64, "dim": "64"})
    keyed.handle("two", signed=False)

    codes, said = doors(run.branch)
    vouched_everywhere(codes, said, "ACCEPTED, unsigned", 0)
    assert 'badge good">gate' not in said["web"]
    assert "Pin the runner's key" not in said["verify"]
    assert "keygen" in said["verify"]
    folder = client.fetch(run.branch, tmp_path / "fetched").folder
    done = CliRunner().invoke(cli, ["-C", str(clone), "gate", str(folder)], standalone_mode=False)
    assert done.output.startswith("ACCEPTED, unsigned: no reason")
    assert done.return_value == 0
    report = next(folder.glob("results/research/*.json"))
    report.write_text(report.read_text().replace("gaussian", "Gaussian"))
    done = CliRunner().invoke(cli, ["-C", str(clone), "gate", str(folder)], standalone_mode=False)
    assert (done.output.partition(":")[0], done.return_value) == ("REJECTED", 5)

    refused_everywhere(*doors(run.branch, keyed.key("one")))


def test_an_incomplete_answer_is_no_rejected_one(clone, keyed, presets, monkeypatch, doors, forger):
    folder = str(presets(job=GATED))
    monkeypatch.setenv("KAKEYA_PRESETS", folder)
    run = Client(clone).run("job")
    keyed.handle(preset_folder=folder)

    codes, said = doors(run.branch, keyed.key())
    vouched_everywhere(
        codes, said, "INCOMPLETE, signed by one's key", 7, "list", "mcp list", "verify", "web", "web list"
    )
    for door in ("wait", "status", "list", "mcp"):
        assert "gate_incomplete" in said[door]
        assert "gate_rejected" not in said[door]
    assert "gate: INCOMPLETE" in said["wait"]
    assert "rejected" not in said["web"] + said["web list"]
    assert any("gate_incomplete (the reports are incomplete: NO_REPORT" in line for line in keyed.told)
    # What older clients read stays what they know.
    result = json.loads(forger.read(run.branch, wire.RESULT))
    state = json.loads(forger.read(run.branch, wire.STATE))
    assert (result["state"], result["exit_code"], state["state"]) == ("gate_rejected", 5, "gate_rejected")
    assert Client(clone).list()[0].as_dict()["conclusion"]["word"] == "gate_incomplete"


CONTRADICTED = [
    ({"gate": {"verdict": "INCOMPLETE"}}, True),
    ({"gate": {"verdict": "REJECTED"}}, True),
    ({"gate": {"verdict": "ACCEPTED"}}, False),
    ({"gate": {"verdict": "ACCEPTED_BY_REQUESTER"}}, False),
    ({"exit_code": 7}, False),
    ({"state": "gate_incomplete", "exit_code": 7}, False),
    ({"state": "succeeded", "exit_code": 0}, False),
]


def test_a_state_that_the_verdict_contradicts_does_not_hold(
    clone, keyed, presets, monkeypatch, forger, git, bus, tmp_path
):
    folder = str(presets(job=GATED))
    monkeypatch.setenv("KAKEYA_PRESETS", folder)
    run = Client(clone).run("job")
    keyed.handle(preset_folder=folder, signed=False)
    answer = forger.tip(run.branch)

    for i, (changes, holds) in enumerate(CONTRADICTED):
        git(bus, "update-ref", f"refs/heads/{run.branch}", answer)
        forger.rewrite(run.branch, **changes)
        # A reader remembers what it verified, and would complain of another answer.
        reader = shutil.copytree(clone, tmp_path / f"reader-{i}")
        assert Client(reader).verify(run.branch).holds is holds, changes
