"""The commit that the engine was built from."""

from pathlib import Path

from bridge.common import version

_ENGINE = Path(__file__).resolve().parent
# The engine's own files, and the packages of the bridge that it imports.
_CODE = (".", ":/bridge/common", ":/bridge/reports")


def of(folder: Path = _ENGINE) -> version.Commit | None:
    """Return the commit of the engine in ``folder``, and whether its code differs from it; None if it is unknown."""
    return version.built_from(folder, _CODE)
