"""The whole path on one machine: a temporary bus, a clone, a runner process, real jobs, their verified answers."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus.wire import State
from bridge.common import environment
from bridge.verify.export import Fetched


@dataclass(frozen=True)
class Job:
    """A preset with its parameters, and what requesting it demonstrates, in plain words."""

    preset: str
    shows: str
    params: Mapping[str, int] = field(default_factory=dict)


# Fewer samples than by default, so that two busy cores finish in seconds. For figures of time, the gate requires
# three repeats (the preset's number), five rows and 32 decoded tokens.
JOBS = (
    Job(
        "mlx-env-probe",
        "Ask for a description of a machine that nobody can log in to. The request is a branch that names a job; the "
        "answer is a commit on that branch, with the job's log, signed by the runner.",
    ),
    Job(
        "kv-codec-rd",
        "Ask for a measurement: the error of several vector codecs at equal stored bits. The job leaves a report. The "
        "evidence gate must accept it twice: on the machine that measured it, and here.",
        {"n_vectors": 1024},
    ),
    Job(
        "k3-step2-fused",
        "Ask for a claim: does speculative decoding make a model generate text faster? The job decodes the same "
        "prompts without drafts, with drafts from a small model in every round, and adaptively: each round uses drafts "
        "from the small model, drafts from the text so far, or none, whichever is fastest. A busy machine makes times "
        "uneven, so runs are repeated, 3 to 21 times, until they are steady. The gate recomputes every claimed "
        "figure from the measured rows.",
        {"n_samples": 3, "max_new_tokens": 48},
    ),
)

# The bundled target and drafter.
MODELS = {"KAKEYA_MAC_VERIFIER_PATH": "tiny", "KAKEYA_MAC_DRAFTER_ID": "tiny"}

# The gate's codes for a busy machine: the report is incomplete, but nothing is broken.
NOISE = frozenset(("DECODE_SPREAD", "PREFILL_SPREAD"))


def is_good(answer: Fetched) -> bool:
    """Return whether a job went as expected: it succeeded, or the gate objects only to a busy machine."""
    result = answer.result
    codes = {fault.code for fault in result.gate.violations} if result.gate else set()
    noisy = result.state is State.GATE_REJECTED and bool(codes) and codes <= NOISE
    return (result.state is State.SUCCEEDED or noisy) and answer.report.holds


_MORE = {
    "kakeya-engine generate --prompt 'def main'": "let the model generate text in this terminal",
    "kakeya presets": "list all available jobs",
    "kakeya mcp": "offer the bridge to an agent as MCP tools (docs/agents.md)",
    "kakeya web": "show a clone's bus in a browser at http://127.0.0.1:1340 (docs/web.md)",
    "kakeya-engine serve": "chat with the bundled model at http://127.0.0.1:1339 (docs/server.md)",
    "kakeya demo --keep DIR": "repeat this and keep the bus, the clone and the results in DIR",
    "kakeya run PRESET --against REF": "compare two commits in one job (docs/requester.md)",
}


def more() -> list[tuple[str, str]]:
    """Return commands of this installation to try next, and what each shows."""
    folder = Path(sys.executable).parent
    if str(folder) in (environment.get("PATH") or "").split(os.pathsep):
        return [*_MORE.items()]
    near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return [(f"{near}{os.sep}{command}", shows) for command, shows in _MORE.items()]
