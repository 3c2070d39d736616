"""The commit that the engine was built from."""

from pathlib import Path

from bridge.common import version

_ENGINE = Path(__file__).resolve().parent
# The engine's own files and what it imports of the bridge.
_CODE = (".", ":/bridge/common", ":/bridge/reports")


def of(folder: Path = _ENGINE) -> version.Commit | None:
    """Return the commit of the engine in ``folder``, and whether its code differs; None if nothing names one."""
    return version.built_from(folder, _CODE)
