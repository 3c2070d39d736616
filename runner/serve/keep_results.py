"""Writing an answer to disk on the host as well, where a workflow picks it up as an artifact."""

from __future__ import annotations

from pathlib import Path

from bridge.errors import KakeyaError
from bridge.verify.check import verify
from bridge.verify.export import write_answer
from runner.session import Session


def keep_results(session: Session, branch: str, folder: Path) -> None:
    """Write the files of the answer on a branch into a folder, if it has one that holds.

    The answer is on the bus already: what goes wrong here is said, and changes nothing.
    """
    try:
        tip = session.bus.tip(branch)
        if tip is None:
            return
        view = session.reader.view(session.bus.git, branch, tip)
        if view.stands.is_final:
            report = verify(session.bus.git, view, session.presets)
            write_answer(session.bus.git, view, report, folder)
    except (KakeyaError, OSError) as error:
        session.tell(f"{branch}: its results were not written to {folder}: {error}")
