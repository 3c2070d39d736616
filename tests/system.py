"""Programs of the system that some tests want, and the way to run the tests as on a machine that lacks them."""

import os
import shutil
from pathlib import Path

# Set, the tests behave as if no system package were installed: .ci/run begins as a newcomer does.
VARIABLE = "TESTS_WITHOUT_SYSTEM_PACKAGES"
ABSENT = bool(os.environ.get(VARIABLE))


def program(*names: str) -> str | None:
    """Return the first of these programs that is installed, also where servers lie; a path is taken as it is."""
    if ABSENT:
        return None
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
    found = (name if Path(name).is_file() else shutil.which(name, path=path) for name in names)
    return next(filter(None, found), None)
