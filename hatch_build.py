"""Completes the package's metadata: the engine's extras depend on the bundled weights, a package of their own.

The weights (27 MB) would more than double a client that has no use for them, so `weights/` builds them into
`kakeya-bridge-models`. Nobody has registered that name on a public index, where a stranger could take it. A build
from a source tree therefore names this tree's folder, and an installer never looks the name up.

`KAKEYA_RELEASE=1` (`make dist`) names the version instead, for wheels that are copied to another machine together.
"""

import os
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

WEIGHTS = "kakeya-bridge-models"
ENGINES = ("mac", "cpu", "cuda")


class Extras(MetadataHookInterface):
    """Sets `optional-dependencies` from pyproject.toml's table of extras and the weights."""

    def update(self, metadata: dict) -> None:
        """Called by hatchling with the metadata that it has read."""
        released = os.environ.get("KAKEYA_RELEASE", "") not in ("", "0")
        place = f"=={metadata['version']}" if released else f" @ {(Path(self.root) / 'weights').as_uri()}"
        metadata["optional-dependencies"] = {
            extra: [*needs, WEIGHTS + place] if extra in ENGINES else list(needs)
            for extra, needs in self.config["extras"].items()
        }
