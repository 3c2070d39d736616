"""Reads a run from its branch on the bus, or from a folder that ``kakeya fetch`` wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.bus import wire
from bridge.bus.wire import Result
from bridge.checklist import Check
from bridge.client import Client
from bridge.common.advice import step
from bridge.errors import ManifestError, VerificationError
from bridge.presets import Preset
from bridge.presets.points import differing, point_name, point_order
from bridge.reports.own import OwnKind, read_kinds
from bridge.verify.folder import verify_folder
from bridge.verify.public_keys import Pin


@dataclass(frozen=True)
class Source:
    """An answer, its checks, and its files by path. Missing files are left out."""

    name: str
    result: Result
    checks: list[Check]
    files: Mapping[str, bytes]
    # The point of a sweep that it is the answer to, as ``block_size=4``.
    point: str = ""

    @property
    def holds(self) -> bool:
        """Return whether all checks passed."""
        return all(check.ok is not False for check in self.checks)


def from_branch(client: Client, branch: str) -> Source:
    """Read an answer from the bus and check it.

    Raises:
        UsageError: there is no such request.
        InfrastructureError: it has no answer yet.
        VerificationError: its result cannot be read.
    """
    report, files = client.answer(branch)
    if report.result is None:
        raise VerificationError(report.checks[0].message, fix=step("See", "verify", branch))
    return Source(branch, report.result, report.checks, files)


def from_folder(folder: Path, pin: Pin | None, presets: Mapping[str, Preset]) -> Source:
    """Read an answer from a folder and check it. Raises the errors of ``verify_folder``."""
    result, report, files = verify_folder(folder, presets, pin)
    return Source(result.branch, result, report.checks, files)


def in_order_of_points(sources: Sequence[Source], swept: Sequence[str] | None = None) -> list[Source]:
    """Return the answers to a sweep, sorted by the parameters that differ between them, and named by these.

    ``swept`` names these parameters, if they are known.
    """
    names = swept or differing([source.result.params for source in sources])
    ordered = sorted(sources, key=lambda source: point_order(source.result.params, names))
    return [replace(source, point=point_name(source.result.params, names)) for source in ordered]


def reports_of(result: Result) -> list[str]:
    """Return the paths of an answer's reports."""
    return [
        file.path for file in result.files
        if file.path.startswith(f"{wire.REPORTS}/") and file.path.endswith(".json")
    ]  # fmt: skip


def own_kinds(source: Source) -> dict[str, OwnKind]:
    """Return the kinds of report that the answer's preset declares; none if they cannot be read."""
    try:
        return read_kinds(source.files[wire.KINDS])
    except (KeyError, ManifestError):
        return {}
