import json
import subprocess
import sys

import pytest

from bridge.gate import check_report
from bridge.reports import kinds
from engine import cli
from engine.errors import BadInput, MissingPackage
from engine.evals.backends import companion, timed
from tests.engine.evals_world import violations

SHORT = ("--prompts", "code", "--max-prompts", "1", "--max-tokens", "4", "--repeats", "1", "--threads", "1")


def test_a_prompt_is_read_in_parts_and_steps_sum_to_the_decoding_time():
    read = []

    def step(tokens):
        read.append(len(tokens))
        return sum(map(len, [tokens])) + len(read)

    row = timed.decode(step, range(1025), 5)

    assert read == [512, 512, 1, 1, 1, 1, 1]
    assert len(row["tokens"]) == 5
    assert row["decode_tokens"] == len(row["step_s"]) == 4
    assert sum(row["step_s"]) == pytest.approx(row["decode_s"], abs=5e-6)
    assert row["prefill_s"] + row["decode_s"] == pytest.approx(row["e2e_s"])
    assert row["process_peak_bytes"] > 1 << 20


def test_torch_that_does_not_start_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(companion, "MODULE", "engine.evals.backends.absent")
    with pytest.raises(MissingPackage, match="torch did not start"):
        companion.TorchProcess(preload=False, model="tiny")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the report of a run that leaves out a cache that torch does not have."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("backends") / "report.json"
    with pytest.raises(SystemExit) as ended:
        cli.main(
            ["bench", "torch-parity", *SHORT, "--caches", "e8v@4.25,e8@q38,affine@4g64", "--out", str(out)]
        )
    assert ended.value.code == 0
    return json.loads(out.read_text())


def claimed(report, name):
    return {claim["arm"]: claim["value"] for claim in report["claims"] if claim["name"] == name}


@pytest.mark.long
def test_the_gate_accepts_a_run_of_both_backends(report):
    assert violations(report) == []
    assert claimed(report, "identical_outputs") == {"torch/raw": 1}
    assert claimed(report, "equal_codes")["torch/e8v@4.25"] == 1
    assert claimed(report, "cache_share")["torch/e8v@4.25"] == pytest.approx(0.2734, abs=1e-4)
    assert claimed(report, "kl")["torch/raw"] < 1e-4
    assert [*report["config"]["left_out"]] == ["affine@4g64"]
    assert {name: about["dtype"] for name, about in report["backends"].items()} == dict.fromkeys(
        ("mlx", "torch"), "float32"
    )


@pytest.mark.long
def test_the_tokens_in_the_report_decide_what_is_claimed(report):
    """A report whose raw tokens differ is rejected, whatever it claims."""
    changed = json.loads(json.dumps(report))
    for row in changed["rows"]:
        if row["arm"] == "torch/raw":
            row["tokens"][1] += 1
    codes = {fault.code for fault in check_report(changed)}
    assert {"OUTPUT_DIVERGES", "CLAIM_NOT_FROM_ROWS"} <= codes


@pytest.mark.long
def test_the_process_of_torch_imports_no_mlx_and_names_a_wrong_model():
    pytest.importorskip("torch")
    code = "import engine.evals.backends.torch_side, sys; print([m for m in sys.modules if m.split('.')[0] == 'mlx'])"
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
    with pytest.raises(BadInput):
        companion.TorchProcess(
            preload=True, model="/absent", device="cpu", dtype="float32", threads=1, caches=[]
        )


def test_the_kind_has_its_command():
    assert kinds.COMMANDS[kinds.TORCH_PARITY] == ("bench", "torch-parity")
