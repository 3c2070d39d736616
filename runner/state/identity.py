"""The runner's instance id, which belongs to one state folder on one machine.

A runner may resume a claim with its own id at once. Two runners with the same id would resume each other's claims, so a
copied state folder gets a new id.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from bridge.bus import times
from bridge.bus.objects import Identity
from bridge.system import local_files

_INSTANCE = re.compile(r"[0-9a-f]{16}")
_MOST_BYTES = 1024
# Author and committer of runners' commits.
WHO = Identity("kakeya-mac-bridge", times.RUNNER_EMAIL)


def known_instance(state_folder: Path) -> str | None:
    """Return the id that a state folder has, if it has one. Changes nothing."""
    try:
        known = (
            (local_files.read_regular(state_folder / "instance", _MOST_BYTES) or b"")
            .decode("ascii", "replace")
            .split()
        )
    except OSError:
        return None
    return known[0] if known and _INSTANCE.fullmatch(known[0]) else None


def instance_of(state_folder: Path, fingerprint: str, tell: Callable[[str], None]) -> str:
    """Return the id of the state folder, or a new one if the folder was copied or moved to another machine.

    The id is bound to the machine and to the folder's inode. A renamed folder keeps its id; a folder restored from a
    backup gets a new one. A copy of the whole disk is not detected.
    """
    path = state_folder / "instance"
    bound_to = hashlib.sha256(f"{fingerprint}:{state_folder.stat().st_ino}".encode()).hexdigest()
    known = (local_files.read_regular(path, _MOST_BYTES) or b"").decode("ascii", "replace").split()
    if known and not _INSTANCE.fullmatch(known[0]):
        tell(f"{path} is damaged: this runner gets a new id")
        known = []
    # Earlier versions wrote one line, without the binding.
    if known and known[1:] in ([], [bound_to]):
        instance = known[0]
    else:
        instance = secrets.token_hex(8)
        if known:
            news = f"this runner is {instance} from now on, and no longer {known[0]}"
            tell(f"{state_folder} was copied, restored, or brought from another machine: {news}")
    if known != [instance, bound_to]:
        local_files.replace(path, f"{instance}\n{bound_to}\n")
    return instance
