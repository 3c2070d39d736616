"""Who a runner is to others: an id that belongs to one state folder on one machine.

A claim in this runner's name is one that it may resume at once. Two runners under one id would resume each other's,
so a folder that was copied gets an id of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path


def instance_of(state: Path, fingerprint: str, tell: Callable[[str], None]) -> str:
    """Return the id of the state folder, a new one where the folder was copied or brought to another machine.

    It is bound to the machine and to the folder's own number in its file system: a folder that was renamed keeps it,
    one that was restored from a backup does not. A copy of the whole disk cannot be told this way.
    """
    path = state / "instance"
    bound_to = hashlib.sha256(f"{fingerprint}:{state.stat().st_ino}".encode()).hexdigest()
    known = path.read_text(encoding="ascii").split() if path.exists() else []
    # A file of one line was written before ids were bound.
    if known and known[1:] in ([], [bound_to]):
        instance = known[0]
    else:
        instance = secrets.token_hex(8)
        if known:
            tell(
                f"{state} was copied, restored, or brought from another machine: "
                f"this runner is {instance} from now on, and no longer {known[0]}"
            )
    if known != [instance, bound_to]:
        draft = path.with_name("instance.new")
        draft.write_text(f"{instance}\n{bound_to}\n", encoding="ascii")
        draft.replace(path)
    return instance
