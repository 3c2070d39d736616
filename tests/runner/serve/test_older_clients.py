"""Requests as the older client writes them: each of its presets, with its own defaults, is a request of good form."""

from __future__ import annotations

import json

import pytest

from bridge.bus import history
from bridge.presets import load_presets
from runner.admit.admission import Admitted, admit
from runner.admit.manifests import read_candidate
from runner.refusal import Refusal

FUSED = {"n_samples": 5, "max_new_tokens": 64, "block_size": 4}
PARITY = {"n_samples": 3, "block_size": 8}
CODE = {"n_samples": 8, "max_new_tokens": 128, "block_size": 4}
# The presets of the older bridge with the defaults that its client fills in.
SIXTEEN = {
    "mlx-env-probe": {},
    "mlx-backend-tests": {},
    "integration-tests": {},
    "k3-step1-incremental": FUSED,
    "k3-step2-fused": FUSED,
    "k3-native-baseline": FUSED,
    "k3-step2-fused-allmlx": FUSED,
    "k3-drafter-parity": PARITY,
    "k3-drafter-parity-fp32": PARITY,
    "k3-kv-quant-eval": {"n_samples": 5, "max_new_tokens": 32},
    "k3-evidence-gate": {},
    "pytest-path": {"path": "tests/test_ok.py"},
    "k3-fused-singlefused-probe": {"n_samples": 2, "max_new_tokens": 16, "block_size": 4},
    "k3-fused-allmlx-code-trim": CODE,
    "k3-fused-allmlx-code": CODE,
    "k3-fused-allmlx-natural": {"n_samples": 5, "max_new_tokens": 48, "block_size": 4},
}
# Whatever a request of good form may still meet: a host that does not run strangers' code.
ANSWERS = {"admitted", "untrusted_code"}


@pytest.fixture(scope="module")
def installed():
    return load_presets()


@pytest.fixture
def answered(host, requester, installed):
    """Send version-1 manifests and return what becomes of them when they are admitted."""

    def ask(*wanted: tuple[str, dict[str, object]]) -> list[Admitted | Refusal]:
        names = [requester.send(requester.older(preset, params=params)) for preset, params in wanted]
        models = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}
        with host.context(env=models) as context:
            return [admitted(context, name) for name in names]

    def admitted(context, name: str) -> Admitted | Refusal:
        git = context.bus.git
        branch = history.read_branch(git, name, context.bus.tip(name))
        try:
            return admit(git, read_candidate(git, branch), installed, context.policy, context.ledger)
        except Refusal as refusal:
            return refusal

    return ask


def code_of(answer: Admitted | Refusal) -> str:
    return answer.code if isinstance(answer, Refusal) else "admitted"


@pytest.mark.long
def test_each_preset_with_the_older_clients_defaults_is_no_refusal_of_its_form(answered):
    typed = [
        (preset, {name: str(value) for name, value in params.items()}) for preset, params in SIXTEEN.items()
    ]
    wanted = [*SIXTEEN.items(), *typed]
    for (preset, params), answer in zip(wanted, answered(*wanted), strict=True):
        assert code_of(answer) in ANSWERS, (preset, params)


@pytest.mark.parametrize("block", [1, 16])
def test_the_older_range_of_blocks_is_taken(answered, block):
    presets = [name for name, params in SIXTEEN.items() if "block_size" in params]
    answers = answered(*((preset, {**SIXTEEN[preset], "block_size": block}) for preset in presets))
    for preset, answer in zip(presets, answers, strict=True):
        assert isinstance(answer, Admitted), (preset, answer)
        drafts = preset not in ("k3-step1-incremental", "k3-native-baseline")
        for argv in answer.commands:
            given = argv[argv.index("--block-size") + 1] if "--block-size" in argv else None
            assert given == (str(block) if drafts else None), preset


def test_beyond_the_older_range_is_refused(answered):
    answers = answered(*(("k3-step1-incremental", {"block_size": block}) for block in ("0", "17")))
    assert [code_of(answer) for answer in answers] == ["out_of_range"] * 2


def ask_for(requester, *paths):
    """Return the branches of requests for tests on these paths."""
    return [
        requester.send(requester.manifest("where", code="request", params={"path": path})) for path in paths
    ]


@pytest.mark.parametrize(
    "trust", [{"code_request": "deny"}, {"code_request": "signed", "unapproved": "hold"}]
)
def test_a_path_that_does_not_exist_is_refused_before_anybody_is_asked(host, requester, trust):
    branches = ask_for(requester, "tests/no.py", "tests/test_ok.py/x", "tests/no/", "tests/no.py::test_x")
    host.handle(trust=trust)
    assert [host.result(branch).reason.code for branch in branches] == ["no_such_path"] * 4
    assert not host.ran.exists()


def test_a_path_that_exists_waits_for_approval(host, requester):
    branches = ask_for(requester, "tests/test_ok.py", "tests", "tests/", "tests/test_ok.py::test_ok")
    host.handle(trust={"code_request": "signed", "unapproved": "hold"})
    assert [host.result(branch) for branch in branches] == [None] * 4


def test_a_link_out_of_the_tree_is_refused_before_anybody_is_asked(host, requester):
    git = requester.git
    blob = git.text("hash-object", "-w", "--stdin", stdin="/etc/passwd")
    folder = git.text("mktree", stdin=f"120000 blob {blob}\tout\n")
    manifest = requester.manifest("where", code="request", params={"path": "tests/out"})
    name = f"mac-bridge/where-{manifest['nonce']}"

    request = git.text("hash-object", "-w", "--stdin", stdin=json.dumps(manifest))
    inner = git.text("mktree", stdin=f"100644 blob {request}\trequest.json\n")
    tree = git.text("mktree", stdin=f"040000 tree {inner}\t.mac-bridge\n040000 tree {folder}\ttests\n")
    commit = git.text("commit-tree", tree, "-p", requester.head, stdin="a request\n")
    requester.push(commit, name)
    result = host.answer(name, trust={"code_request": "signed", "unapproved": "hold"})
    assert result.reason.code == "path_escape"
