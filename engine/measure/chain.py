"""The run's id, given by the runner, and the digest chain of its rows, printed while they are measured.

Whoever reads the runner's log can tell from it that a report's rows are those that were measured then.
"""

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from engine import environment

VARIABLE = "KAKEYA_RUN_ID"
LATER = ("divergence",)  # of a row: why it parts from another one, looked into after all have been measured
EVERY_S = 1.0
_ID = re.compile(r"[0-9a-f]{64}")


def run_id() -> str | None:
    """Return the id that a runner gave this job; None if nobody did."""
    found = environment.get(VARIABLE)
    return found if found and _ID.fullmatch(found) else None


class Chain:
    """The digests of rows, each of a row and of all before it. Prints at most one line a second, and the last."""

    def __init__(self) -> None:
        self.count, self.digest = 0, ""
        self._told, self._last = 0, 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row that has been measured."""
        told = {name: value for name, value in row.items() if name not in LATER}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        self.digest = hashlib.sha256(f"{self.digest}\n{text}".encode()).hexdigest()
        self.count += 1
        if time.monotonic() - self._last >= EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Print how many rows there are, with the last digest, for a runner's log."""
        if run_id() is not None and self.count and self.count != self._told:
            print(f"kakeya-rows {self.count} {self.digest}", file=sys.stderr, flush=True)
            self._told, self._last = self.count, time.monotonic()


def tell_all(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the digest of all rows of a report."""
    if run_id() is None:
        return
    chain = Chain()
    for row in rows:
        chain.add(row)
    chain.tell()
