"""Every shipped preset over the bus, run for real: on a small pair in place of the host's models, and briefly."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

import presets
from bridge.bus.wire import State
from bridge.client import Client
from bridge.demo.walkthrough import NOISE
from bridge.presets import load_presets
from runner.job.sandbox import bubblewrap, seatbelt
from tests.bridge.gate.reports import in_run, native
from tests.bridge.gate.runs import Key, answer, write_pair

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(importlib.util.find_spec("mlx_lm") is None, reason="the engine is not installed"),
]

PRESETS = load_presets()
SHORT = {"n_samples": 1, "max_new_tokens": 2}
BLOCKS = {**SHORT, "block_size": 2}
# An adaptive arm drafts after its first steps, which measure what a plain one costs.
ADAPTIVE = {**BLOCKS, "max_new_tokens": 8}
# Parameters with which those that measure end soon. Any other preset runs with its defaults.
QUICK = {
    "acceptance-bench": ADAPTIVE,
    "k3-drafter-parity": {"n_samples": 1, "block_size": 2},
    "k3-drafter-parity-fp32": {"n_samples": 1, "block_size": 2},
    "k3-fused-allmlx-code": BLOCKS,
    "k3-fused-allmlx-code-trim": BLOCKS,
    "k3-fused-allmlx-natural": {**BLOCKS, "context_len": 512},
    "k3-fused-singlefused-probe": {**BLOCKS, "context_len": 1024},
    "k3-kv-quant-eval": SHORT,
    "k3-native-baseline": SHORT,
    "k3-step1-incremental": SHORT,
    "k3-step2-fused": ADAPTIVE,
    "k3-step2-fused-allmlx": BLOCKS,
    "kv-codec-rd": {"n_vectors": 64},
    "pass-at-1": {"n_samples": 1, "max_new_tokens": 16},
    "scorecard": ADAPTIVE,
    "serve-conformance": {"cache": "raw", "max_new_tokens": 24},
    "torch-parity": SHORT,
    "verify-l-sweep": {"context_len": 16, "reps": 5},
}
# What the presets' own argument lists say, and what is tried in its place.
SHORTER = {
    '"21"': '"3"',
    '"512,1024"': '"256"',
    '"512"': '"256"',
    '"0.1,0.5"': '"0.1,0.2"',
    "--layers, auto, --samples,": '--layers, auto, --lengths, "256", --depths, "0.1,0.2", --samples,',
}
ON_A_CLUSTER = [name for name, preset in PRESETS.items() if "KAKEYA_CLUSTER" in preset.env_names]
MEASURING = [
    name
    for name, preset in PRESETS.items()
    if preset.collect and preset.code == "installed" and name not in ON_A_CLUSTER
]
PROBING = [
    name
    for name, preset in PRESETS.items()
    if preset.code == "installed"
    and not preset.collect
    and not preset.inputs
    and not any(param.required for param in preset.params.values())
]


def settings(folder: Path) -> dict[str, str]:
    return {"KAKEYA_MAC_VERIFIER_PATH": str(folder), "KAKEYA_MAC_DRAFTER_ID": str(folder)}


@pytest.fixture(scope="session")
def folders():
    """What writes models, which needs the engine: not to be imported where that is not installed."""
    return importlib.import_module("tests.engine.folders")


@pytest.fixture(scope="session")
def pair(folders, tmp_path_factory) -> Path:
    """Target and drafter as the bundled pairs lie on disk, with weights that nobody trained."""
    return folders.write_walker(tmp_path_factory.mktemp("walker"))


@pytest.fixture(scope="session")
def hybrid(folders, tmp_path_factory) -> Path:
    """The same with a ring in every other layer."""
    return folders.write_pair(tmp_path_factory.mktemp("hybrid"), folders.GEMMA3)


@pytest.fixture(scope="session")
def brief(tmp_path_factory) -> Path:
    """The shipped presets with short prompts, and three repeats at most: on a busy machine, times are never steady.

    With one thread, as in all that the workers of pytest-xdist run; the demonstration finds out how many are best.
    """
    folder = tmp_path_factory.mktemp("presets")
    offline = '    HF_HUB_OFFLINE: "1"'
    for path in Path(presets.__file__).parent.glob("*.yaml"):
        text = path.read_text()
        for whole, short in SHORTER.items():
            text = text.replace(whole, short)
        (folder / path.name).write_text(text.replace(offline, f'{offline}\n    OPENBLAS_NUM_THREADS: "1"'))
    return folder


@pytest.fixture
def answered(clone, brief, keyed, bus, git):
    """Ask, let the runner answer, and return the result and the reports by their names."""
    client = Client(clone, presets=brief)

    def ask(name, params=None, **policy):
        run = client.run(name, params or {})
        keyed.handle(preset_folder=str(brief), **policy)
        status = run.wait(timeout=120)
        result = json.loads(git(bus, "show", f"{run.branch}:.mac-bridge/result.json"))
        # The answer's state is the one that older clients know; readers tell by its verdict what is meant.
        incomplete = result["state"] == "gate_rejected" and result["gate"]["verdict"] == "INCOMPLETE"
        assert status.state == ("gate_incomplete" if incomplete else result["state"])
        found = git(bus, "ls-tree", "-r", "--name-only", run.branch, "results/research").splitlines()
        return result, {path: json.loads(git(bus, "show", f"{run.branch}:{path}")) for path in found}, run

    return ask


ON_A_MODEL = [name for name in MEASURING if "KAKEYA_MAC_VERIFIER_PATH" in PRESETS[name].env_names]
LONG = (pytest.mark.long, pytest.mark.timeout(900))
# Two tokens leave prompt lookup nothing to draft from in word problems.
TOO_SHORT: dict[str, set[str]] = {}
LONGEST = ("scorecard", "acceptance-bench", "k3-step1-incremental")


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG if n in LONGEST else ()) for n in MEASURING])
def test_a_measuring_preset_leaves_its_reports_and_they_hold(name, answered, pair):
    if "dflash" in PRESETS[name].requires:
        pytest.importorskip("dflash.model_mlx", reason="compares with the dflash package")
    if "torch" in PRESETS[name].requires:
        pytest.importorskip("torch", reason="the drafter in torch takes part")
    if name == "pass-at-1" and not any(map(os.path.exists, (*bubblewrap.PROGRAMS, seatbelt.PROGRAM))):
        pytest.skip("no sandbox is installed, and the preset refuses to run without")
    confined = {"sandbox": "require"} if name == "pass-at-1" else {}
    result, reports, run = answered(name, QUICK.get(name), env=settings(pair), **confined)

    assert [command["exit_code"] for command in result["commands"]] == [0] * len(PRESETS[name].steps), (
        run.logs()
    )
    found = result["gate"]["violations"]
    assert {one["code"] for one in found} <= NOISE | TOO_SHORT.get(name, set()), found
    assert result["state"] in {State.SUCCEEDED, State.GATE_REJECTED}
    assert sorted(reports) == sorted(PRESETS[name].collect)
    assert [reports[path]["kind"] for path in PRESETS[name].collect] == PRESETS[name].kinds
    for report in reports.values():
        for model in report.get("models", []):
            assert model["id"] == str(pair / model["role"])
        for arm in report.get("arms", []):
            drafted = [
                row["drafted"] for row in report["rows"] if row.get("arm") == arm["name"] and "drafted" in row
            ]
            assert arm["role"] != "candidate" or not drafted or any(map(any, drafted))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "params"), [("distributed-probe", {"repeats": 3}), ("distributed-generate", SHORT)]
)
def test_a_preset_on_a_cluster_leaves_its_report_and_it_holds(name, params, answered, folders, tmp_path):
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    folder = folders.write_target(tmp_path, heads, dtype="float32")

    result, reports, run = answered(name, params, env=settings(folder), cluster={"ranks": 2})

    assert result["commands"][0]["exit_code"] == 0, run.logs()
    assert {one["code"] for one in result["gate"]["violations"]} <= NOISE
    assert [report["kind"] for report in reports.values()] == PRESETS[name].kinds


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [(None, "KAKEYA_CLUSTER"), ({"ranks": 2, "presets": ["distributed-g*"]}, "cluster.presets")],
)
def test_a_preset_needs_a_cluster_that_it_may_use(cluster, reason, client, keyed, bus, git):
    run = client.run("distributed-probe", {})
    keyed.handle(cluster=cluster)
    result = json.loads(git(bus, "show", f"{run.branch}:.mac-bridge/result.json"))
    assert result["state"] == State.REFUSED
    assert reason in result["reason"]["message"]


# What the layers of `tiny-hybrid` change shows in this one, the shortest. The others measure the same parts,
# read long prompts, encode packed caches on the CPU or have many steps: they run if asked for (-m sweep), in some
# minutes each, as do all on `tiny`, whose layers are those of the pair above. docs/presets.md says which preset runs on
# which pair.
ON_HYBRID = ("k3-native-baseline",)


ASKED_FOR = (pytest.mark.sweep, pytest.mark.timeout(1800))


@pytest.mark.long
@pytest.mark.parametrize("bundled", [pytest.param("tiny", marks=ASKED_FOR), "tiny-hybrid"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ON_HYBRID else ASKED_FOR) for n in ON_A_MODEL]
)
def test_a_preset_runs_on_a_bundled_pair(name, bundled, answered):
    if not importlib.import_module("engine.models.registry").is_bundled_here(bundled):
        pytest.skip("this installation holds no bundled pair")
    if "dflash" in PRESETS[name].requires:
        pytest.importorskip("dflash.model_mlx", reason="compares with the dflash package")
    if "torch" in PRESETS[name].requires:
        pytest.importorskip("torch", reason="the drafter in torch takes part")
    env = {"KAKEYA_MAC_VERIFIER_PATH": bundled, "KAKEYA_MAC_DRAFTER_ID": bundled}

    result, reports, run = answered(name, QUICK.get(name), env=env)

    assert [command["exit_code"] for command in result["commands"]] == [0] * len(PRESETS[name].steps), (
        run.logs()
    )
    assert {violation["code"] for violation in result["gate"]["violations"]} <= NOISE | TOO_SHORT.get(
        name, set()
    )
    assert sorted(reports) == sorted(PRESETS[name].collect)
    assert {model["id"] for report in reports.values() for model in report.get("models", [])} == {bundled}


@pytest.mark.long
def test_a_model_with_rings_is_measured_without_trimming_and_its_report_says_so(answered, hybrid):
    result, reports, run = answered("k3-fused-allmlx-code-trim", BLOCKS, env=settings(hybrid))

    assert result["commands"][0]["exit_code"] == 0, run.logs()
    (report,) = reports.values()
    assert "cannot be trimmed" in report["config"]["left_out"]["dflash/trim"]
    assert "dflash/late" in [arm["name"] for arm in report["arms"]]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_restorer_that_the_host_names_restores_the_sliding_layers(answered, folders, tmp_path):
    """The pair itself comes with none: only the folder that KAKEYA_MAC_FTHETA_DIR names can be it."""
    target = folders.GEMMA3 | {"sliding_window": 128, "num_hidden_layers": 2}
    taps = {
        "num_target_layers": 2,
        "dflash_config": {"mask_token_id": folders.MASK, "target_layer_ids": [0, 1]},
    }
    pair = folders.write_pair(tmp_path / "pair", target, taps)
    restorer = folders.write_restorer(pair, tmp_path / "f-theta")
    env = settings(pair) | {"KAKEYA_MAC_FTHETA_DIR": str(restorer)}

    result, reports, run = answered("k3-step1-incremental", SHORT, env=env)

    assert [command["exit_code"] for command in result["commands"]] == [0, 0], run.logs()
    assert {violation["code"] for violation in result["gate"]["violations"]} <= NOISE
    assert len(reports) == 2
    for report in reports.values():
        config = report["config"]
        assert (config["layers"], config["restorer"], config["left_out"]) == ("sliding", str(restorer), {})
        assert {model["role"]: model["id"] for model in report["models"]}["reconstruction"] == str(restorer)
        read = [
            row["counters"]["injected_reads"] for row in report["rows"] if row["arm"] == "restored learned"
        ]
        assert read
        assert all(read)
        kept = [row["memory"]["layers"] for row in report["rows"] if row["arm"] == "restored learned"]
        assert {tuple(layer["kind"] for layer in layers) for layers in kept} == {("RestoredCache", "KVCache")}


def test_a_host_that_names_no_model_runs_none(answered):
    result, reports, _ = answered("k3-native-baseline", SHORT)

    assert (result["state"], result["reason"]["code"]) == (State.REFUSED, "missing_env")
    assert reports == {}


@pytest.mark.parametrize("name", PROBING)
def test_a_probing_preset_succeeds(name, answered):
    result, reports, run = answered(name)

    assert result["state"] == State.SUCCEEDED, run.logs()
    assert reports == {}


OWN = {
    "mlx-backend-tests": {
        "tests/engine/test_it.py": "from engine.mx import mx\n\ndef test_it():\n    assert mx.array(3).item() == 3\n"
    },
    "integration-tests": {
        "pytest.ini": "[pytest]\nmarkers = integration\n",
        "tests/integration/test_it.py": (
            "import os, pathlib, pytest\n\n@pytest.mark.integration\ndef test_it():\n"
            "    assert (pathlib.Path(os.environ['KAKEYA_MAC_VERIFIER_PATH']) / 'target').is_dir()\n\n"
            "def test_other():\n    assert False\n"
        ),
    },
    "pytest-path": {"tests/test_it.py": "def test_it():\n    pass\n"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_a_preset_for_the_requesters_tests_runs_them(name, answered, clone, git, pair):
    commit(clone, git, OWN[name])
    params = {"path": "tests/test_it.py"} if name == "pytest-path" else {}

    result, _, run = answered(name, params, env=settings(pair), trust={"code_request": "allow"})

    assert result["state"] == State.SUCCEEDED, run.logs()
    assert "1 passed" in run.logs()


@pytest.mark.long
@pytest.mark.parametrize(
    ("pinned", "edit", "state", "verdict"),
    [
        (True, "", State.SUCCEEDED, "ACCEPTED"),
        (True, " ", State.FAILED, "EDITED"),
        (False, "", State.FAILED, "OTHER_SIGNER"),
    ],
)
def test_the_evidence_gate_judges_the_signed_reports_of_the_request(
    pinned, edit, state, verdict, answered, clone, git, tmp_path
):
    key = Key()
    report = write_pair(tmp_path, answer(key, in_run(native())))
    files = {
        f"results/research/{path.name}": path.read_text() for path in (report, report.with_suffix(".run"))
    }
    files["results/research/report.json"] += edit
    commit(clone, git, files)
    env = {"KAKEYA_PUBLIC_KEY": key.public.text} if pinned else {}

    result, _, run = answered("k3-evidence-gate", env=env)

    assert result["state"] == state, run.logs()
    assert verdict in run.logs()


def commit(clone, git, files):
    for name, text in files.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "Work")
