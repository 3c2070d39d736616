"""What the self-probe runs inside a sandbox: it tries what must not work, and then what must.

Run from its text by whatever interpreter the jobs use, so nothing but the standard library is at hand. Arguments:
a file of the runner's, a port on loopback at which somebody listens, the runner's process id. Prints what it could do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Try everything and print it as JSON."""
    canary, port, runner = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    forbidden: dict[str, Callable[[], object]] = {
        "read a file of the runner's": canary.read_bytes,
        "see a file of the runner's": canary.lstat,
        "reach a port on this machine": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "signal the runner": lambda: os.kill(runner, 0),
    }
    needed: dict[str, Callable[[], object]] = {
        "write into its folder": lambda: Path("probe").write_bytes(b"x"),
        "write into its home": lambda: (Path.home() / "probe").write_bytes(b"x"),
        "write into its temporary folder": lambda: (Path.home() / "tmp" / "probe").write_bytes(b"x"),
    }
    # The folder may exist in here, empty and the job's own. Whether this arrived is judged from outside.
    _works(lambda: canary.with_name(canary.name + "-written").write_bytes(b""))
    could = [what for what, act in forbidden.items() if _works(act)]
    could_not = [what for what, act in needed.items() if not _works(act)]
    print(json.dumps({"could": could, "could_not": could_not}))


def _works(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
