"""Writes bridge/schemas/report-3.json from the models of bridge/reports/models.py: `make docs`."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.reports.models import schema

TARGET = Path(__file__).parents[1] / "bridge" / "schemas" / "report-3.json"


def text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
