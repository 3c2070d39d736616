"""What is known of the models and prompts that come with the engine: the JSON that docs/build_bundled.py writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.evidence.report_index import ReportIndex

DIGESTS = ("weights", "config", "tokenizer")  # the fields that hold them

_FILE = Path(__file__).parent / "bundled.json"


@cache
def bundled() -> dict[str, Any]:
    """Return the digests of the models and prompts that come with the engine."""
    return dict(json.loads(_FILE.read_text(encoding="utf-8")))


@cache
def known_weights() -> dict[str, str]:
    """Return the names of the bundled models by the digests of their weights."""
    return {told["weights"]: name for name, roles in bundled()["models"].items() for told in roles.values()}


def bundled_part(model: Any) -> dict[str, Any]:
    """Return what is known of a model of a report whose weights come with the engine; nothing of others."""
    name = known_weights().get(model.weights)
    return dict(bundled()["models"][name].get(model.role) or {}) if name else {}


def bundled_target(index: ReportIndex) -> dict[str, Any]:
    """Return what is known of a report's target if its weights come with the engine; nothing of others."""
    return bundled_part(index.target) if index.target is not None else {}
