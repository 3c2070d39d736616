"""A report of a few megabytes, within all limits of the format, whose rules take many seconds."""

from __future__ import annotations

import json

from tests.bridge.evidence import reports

CLAIMS = 200
TIMES = 120


def slow(times: int = TIMES) -> bytes:
    """Return the report: as many claims as it may have, each of which is about all of its rows."""
    made = reports.spec_bench()
    prompts, claims = made["prompts"], made["claims"]
    made["prompts"] = [
        one
        | {
            "id": f"{one['id']}-{i}",
            "text": f"{one['text']} {i}",
            "sha256": reports.digest(f"{one['text']} {i}"),
        }
        for i in range(times)
        for one in prompts
    ]
    made["rows"] = [row | {"prompt": f"{row['prompt']}-{i}"} for i in range(times) for row in made["rows"]]
    made["claims"] = [claims[i % len(claims)] | {"where": {}} for i in range(CLAIMS)]
    return json.dumps(made).encode()
