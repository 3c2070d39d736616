"""The script to which ACTIONS_RUNNER_HOOK_JOB_STARTED points."""

from __future__ import annotations

import shlex
from pathlib import Path

_TEXT = """\
#!/bin/sh
# Written by `kakeya-runner install --hook`. GitHub's runner starts it before each job's first command, and ends the
# job where it ends with anything but 0.
# A workflow chooses the folder that this starts in, so nothing is looked up there.
cd / || exit 1
exec {python} -I -m runner --policy {policy} hook
"""


def hook_script(python: Path, policy: Path) -> bytes:
    """Return the script: nothing in it depends on the folder, the PATH or the environment that it is started with."""
    return _TEXT.format(python=shlex.quote(str(python)), policy=shlex.quote(str(policy))).encode()
