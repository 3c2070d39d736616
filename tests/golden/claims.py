"""The claims of the reports that were published then, and of the reports of real runs among the tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def reports() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each report with its path in the repository."""
    for name, data in report_files():
        yield name, json.loads(data)


def report_files() -> Iterator[tuple[str, bytes]]:
    """Yield the content of each report, decompressed, with the path that it had when it was recorded."""
    for now, then in (("golden/reports", "docs/results"), ("bridge/gate/real", "tests/bridge/evidence/real")):
        for path in sorted((ROOT / "tests" / now).glob("*.json.gz")):
            name = path.name.removesuffix(".gz") if then.startswith("docs") else path.name
            yield f"{then}/{name}", gzip.decompress(path.read_bytes())


def texts(claims_of: Callable[[dict[str, Any]], list[Any]] | None = None) -> dict[str, str]:
    """Return the claims of all reports: JSON with one canonical claim per line.

    ``claims_of`` derives a report's claims; by default they are those that the file contains.
    """
    derive = claims_of or (lambda report: report["claims"])
    parts = (
        f"{json.dumps(name)}:[\n" + ",\n".join(map(canonical, derive(report))) + "\n]"
        for name, report in reports()
    )
    return {"claims.json": "{\n" + ",\n".join(parts) + "\n}\n"}


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
