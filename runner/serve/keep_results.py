"""Also writes an answer to the host's disk, so that a GitHub workflow can upload it as an artifact."""

from __future__ import annotations

from pathlib import Path

from bridge.errors import KakeyaError
from bridge.verify.check import verify
from bridge.verify.export import write_answer
from runner.context import RunnerContext


def keep_results(context: RunnerContext, branch: str, folder: Path) -> None:
    """Write the files of a branch's answer into a folder, if the answer exists and verifies.

    The answer is already on the bus, so a failure here is only reported.
    """
    try:
        tip = context.bus.tip(branch)
        if tip is None:
            return
        view = context.reader.view(context.bus.git, branch, tip)
        if view.stands.is_final:
            report = verify(context.bus.git, view, context.presets)
            write_answer(context.bus.git, view, report, folder)
    except (KakeyaError, OSError) as error:
        context.tell(f"{branch}: its results were not written to {folder}: {error}")
