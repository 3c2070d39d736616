"""What the tests of requests without a bus share: a host with presets, and manifests for it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.presets import load_presets
from bridge.system.signals import Withdrawal
from bridge.verify.export import Fetched
from bridge.without_bus import make_manifest
from runner.direct.job import answer_manifest
from runner.job.observer import Observer
from runner.policy import load_policy


class Printed(Observer):
    """Keeps the log."""

    def __init__(self) -> None:
        self.log = b""

    def prints(self, data: bytes) -> None:
        self.log += data


@dataclass
class Alone:
    """A host whose requests come as manifests."""

    policy: Path
    presets: Path
    out: Path
    printed: Printed = field(default_factory=Printed)
    told: list[str] = field(default_factory=list)
    withdrawal: Withdrawal = field(default_factory=Withdrawal)

    def manifest(self, preset: str = "quick", **changes: object) -> bytes:
        """Return a valid manifest with changes; a field that is given as None is left out."""
        known = load_presets(self.presets)["quick"]
        made = make_manifest(
            known, {}, lifetime=timedelta(hours=1), labels=(), requested_by="a.user@example.com"
        )
        whole = {**made.model_dump(exclude_none=True), "preset": preset, **changes}
        return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()

    def answer(self, manifest: bytes | str = "quick", out: Path | None = None) -> Fetched:
        """Answer a manifest, or one for a preset, in this process."""
        content = self.manifest(manifest) if isinstance(manifest, str) else manifest
        return answer_manifest(
            load_policy(self.policy), content, out or self.out, withdrawal=self.withdrawal, observer=self.printed,
            tell=self.told.append,
        )  # fmt: skip


def job(code: str) -> dict[str, object]:
    return {"steps": [{"argv": [sys.executable, "-I", "-c", code]}]}


@pytest.fixture
def alone(keyed, runners, presets, tmp_path) -> Alone:
    """A host with its key, and presets."""
    keyed.key()
    ran = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')"
    folder = presets(
        quick=job(f"print('hello', 6 * 7); {ran}"),
        broken=job(f"{ran}; raise SystemExit(3)"),
        slow=job(f"import time; {ran}; print('begun', flush=True); time.sleep(600)"),
        hidden=job(ran),
        labelled={**job(ran), "labels": ["m9"]},
        theirs={**job(ran), "code": "request"},
        fed={**job(ran), "inputs": {"under": "results/research", "ending": ".json"}},
    )
    policy = runners.policy(
        preset_folder=str(folder), presets=["quick", "broken", "slow", "labelled", "theirs", "fed"]
    )
    return Alone(policy, folder, tmp_path / "answer")
