"""The demonstration: what it runs comes back judged, a busy machine is no failure, and everything else is one."""

from __future__ import annotations

import importlib.util
import io
import json
import random
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from bridge import gate
from bridge.bus.wire import Gate, State
from bridge.cli import main
from bridge.demo import tables, walkthrough
from bridge.gate.codes import CODES
from bridge.presets import load_presets
from bridge.verify.verdict import gate_lines
from tests.bridge.gate import reports

PRESETS = load_presets()


@dataclass
class Told:
    """As much of a fetched answer as its judgement needs."""

    state: State
    gate: Gate | None = None
    holds: bool = True
    result: Told = field(init=False)
    report: Told = field(init=False)

    def __post_init__(self):
        self.result = self.report = self


def gate_of(*codes: str) -> Gate:
    found = [gate.violation(code, "it was so") for code in codes]
    return Gate(verdict=gate.verdict(found), violations=found)


OUTCOMES = {
    "success without a report": (Told(State.SUCCEEDED), True),
    "success with a report": (Told(State.SUCCEEDED, gate_of()), True),
    "times that vary": (Told(State.GATE_REJECTED, gate_of("DECODE_SPREAD", "PREFILL_SPREAD")), True),
    "no report": (Told(State.GATE_REJECTED, gate_of("NO_REPORT")), False),
    "a lie": (Told(State.GATE_REJECTED, gate_of("CLAIM_NOT_FROM_ROWS")), False),
    "a lie on a busy machine": (
        Told(State.GATE_REJECTED, gate_of("DECODE_SPREAD", "OUTPUT_DIVERGES")),
        False,
    ),
    "a job that failed": (Told(State.FAILED), False),
    "a job that failed with a verdict": (Told(State.FAILED, gate_of("DECODE_SPREAD")), False),
    "rejected without reasons": (Told(State.GATE_REJECTED), False),
    "rejected with an empty list": (Told(State.GATE_REJECTED, gate_of()), False),
    "a refusal": (Told(State.REFUSED), False),
    "an answer that was changed": (Told(State.SUCCEEDED, holds=False), False),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_counts_as_shown(name):
    answer, good = OUTCOMES[name]

    assert walkthrough.is_good(answer) is good


def follow_each_other(report):
    """Let each row start when the one before it has ended."""
    now = 0.0
    for row in report["rows"]:
        row["started_s"] = now
        now += row["e2e_s"]
    report["seconds"] = now


@pytest.mark.parametrize("seed", range(8))
def test_what_a_busy_machine_does_to_an_honest_report_counts_as_noise(seed):
    report, dice = reports.spec_bench(), random.Random(seed)
    for row in report["rows"]:
        prefill, decoding = row["prefill_s"] * dice.uniform(1, 5), row["decode_s"] * dice.uniform(1, 5)
        row |= {"prefill_s": prefill, "decode_s": decoding, "e2e_s": prefill + decoding}
    follow_each_other(report)
    report, run = reports.vouched(reports.derived(report))

    found = {fault.code for fault in gate.check_report(report, run)}

    assert found
    assert found <= walkthrough.NOISE


def test_noise_never_rejects_a_report():
    assert {CODES[code].effect for code in walkthrough.NOISE} == {"INCOMPLETE"}


def test_the_jobs_are_presets_and_one_of_them_claims_a_speed():
    assert all(PRESETS[job.preset].check_params(dict(job.params)) is not None for job in walkthrough.JOBS)
    assert [kind for job in walkthrough.JOBS for kind in PRESETS[job.preset].kinds][-1] == "kakeya.spec-bench"


def printed(report, *codes: str) -> str:
    out = io.StringIO()
    tables.show(report, gate_of(*codes), Console(file=out, width=200))
    return out.getvalue()


def test_figures_of_speed_are_those_that_are_claimed():
    report = reports.spec_bench()
    claims = {(claim["name"], claim.get("arm")): claim for claim in report["claims"]}
    speedup = claims["plain_speedup", "dflash"]

    text = printed(report)

    low, high = speedup["interval"]
    assert f"{speedup['value']:.2f}x ({low:.2f}x to {high:.2f}x)" in text
    assert f"{claims['decode_tok_s', 'dflash']['value']:.0f} (" in text
    assert f"{claims['accept_length', 'dflash']['value']:.2f}" in text
    assert "one-pass" not in text
    assert "loss" not in text


def test_codes_are_shown_at_equal_bits():
    report = reports.codec_rd()
    report["rows"] = [row | {"group": 128} for row in report["rows"]]

    text = printed(report)

    assert "1.56e-01" in text
    assert "2.20e-01" in text


def test_a_loss_is_called_one():
    report = reports.spec_bench()
    for row in report["rows"]:
        if row["arm"] == "dflash":
            row["decode_s"] *= 3

    assert ": a loss" in printed(reports.derived(report))


def test_the_claim_in_words_is_that_of_the_strongest_arm():
    report = reports.spec_bench()
    (speedup,) = [claim for claim in report["claims"] if claim["name"] == "decode_speedup"]
    weaker = speedup | {"arm": "adaptive/auto", "value": speedup["value"] / 2}
    stronger = speedup | {"arm": "adaptive/auto", "value": speedup["value"] * 2}

    for other, named in ((weaker, "dflash"), (stronger, "adaptive drafts")):
        lines = [*tables.speed_words(report | {"claims": [speedup, other]})]

        assert [line.partition(":")[0] for line in lines] == [named]


def test_the_speed_over_plain_loops_comes_first_where_it_is_claimed():
    report = reports.spec_bench()
    report["claims"] = [claim for claim in report["claims"] if "plain_speedup" not in claim["name"]]
    (older,) = [claim for claim in report["claims"] if claim["name"] == "decode_speedup"]
    newer = {**older, "name": "plain_speedup", "value": 1.25, "interval": [0.75, 1.5]}
    both = report | {"claims": [*report["claims"], newer]}

    alone = f"dflash: {older['value']:.2f} times as fast as mlx-lm alone"
    assert [*tables.speed_words(both)] == [
        "dflash: 1.25 times as fast as the fastest plain loop",
        alone,
    ]
    assert "1.25x (0.75x to 1.50x)" in printed(both)
    assert "over mlx-lm" not in printed(both)
    assert [*tables.speed_words(report)] == [alone]
    assert "over mlx-lm" in printed(report)


@pytest.mark.rows(1)
@pytest.mark.parametrize("on_path", [True, False])
def test_what_else_to_try_are_commands_that_can_be_pasted(monkeypatch, tmp_path, on_path):
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(folder) if on_path else "/usr/bin")
    monkeypatch.chdir(tmp_path)

    for command, _ in walkthrough.more():
        program, *words = shlex.split(command)
        assert program.startswith("kakeya") if on_path else Path(program).parent == folder
        help_of = [
            sys.executable,
            "-P",
            "-m",
            {"kakeya": "bridge", "kakeya-engine": "engine"}[Path(program).name],
        ]
        done = subprocess.run([*help_of, words[0], "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert all(word in done.stdout for word in words[1:] if word.startswith("--"))


def test_of_what_the_gate_rejects_nothing_is_said_in_words():
    text = printed(reports.spec_bench(), "DECODE_SPREAD")

    assert "tokens/s" in text
    assert "times as fast" not in text


def test_a_rule_that_is_broken_often_is_said_once():
    lines = [*gate_lines(gate_of("DECODE_SPREAD", "DECODE_SPREAD", "DECODE_SPREAD"))]

    assert [what for what, _ in lines] == ["INCOMPLETE", "DECODE_SPREAD", ""]
    assert lines[1][1].endswith("(and 2 more)")


def test_each_reason_of_the_gate_is_shown_with_what_mends_it():
    text = str([*gate_lines(gate_of("DECODE_SPREAD", "UNKNOWN_KIND"))])

    assert "REJECTED" in text
    for code in ("DECODE_SPREAD", "UNKNOWN_KIND"):
        assert code in text
        assert CODES[code].fix in text


@pytest.mark.bus
@pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed")
@pytest.mark.timeout(600)
class TestRun:
    """The whole of it, with less of each job."""

    @pytest.fixture
    def shown(self, monkeypatch, capsys):
        def run(job):
            monkeypatch.setattr(walkthrough, "JOBS", (job,))
            monkeypatch.setattr(sys, "argv", ["kakeya", "demo", "--json"])
            with pytest.raises(SystemExit) as ended:
                main()
            out, err = capsys.readouterr()
            return int(ended.value.code or 0), json.loads(out), err

        return run

    @pytest.mark.long
    def test_a_gated_job_is_run_and_its_verdict_shown(self, shown):
        code, data, text = shown(replace(walkthrough.JOBS[-1], params={"n_samples": 1, "max_new_tokens": 2}))

        assert code == 0, text
        (run,) = data["runs"]
        assert run["gate"]["verdict"] == "ACCEPTED", text
        assert run["holds"]
        assert run["signed"]
        assert "mlx-lm alone" in text
        assert "no speed is claimed" in text
        assert "gate: ACCEPTED" in text
        assert "all answers are verified and accepted" in text

    @pytest.mark.long
    def test_a_job_that_cannot_run_here_is_a_failure_with_its_reason(self, shown, monkeypatch):
        monkeypatch.setitem(walkthrough.MODELS, "KAKEYA_MAC_VERIFIER_PATH", "/nowhere")

        code, data, text = shown(walkthrough.Job("k3-native-baseline", "It fails.", {"n_samples": 1}))

        assert code == 1
        assert [run["state"] for run in data["runs"]] == ["refused"]
        assert "something failed" in text
        assert "/nowhere" in text
