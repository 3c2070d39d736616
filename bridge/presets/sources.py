"""Where a requester's presets come from, in one order for all commands.

A name counts in the first of these places that has it: the folder that KAKEYA_PRESETS or the caller names,
``.kakeya/presets/`` of this repository, ``.kakeya/presets/`` on the bus's default branch, the built-in ones. A file
that cannot be used hides the presets of its name in later places, and no others. What runs is decided by the runner's
own files alone.
"""

from itertools import islice
from pathlib import Path

import yaml

from bridge.bus.folder.bus_folder import FOLDER, PRESETS, read_bus_folder
from bridge.common import environment, limits
from bridge.errors import PresetError
from bridge.presets.load import File, Layer, Presets, folder_layer, load_layers
from bridge.presets.model import Preset
from bridge.system.git import Git

VARIABLE = "KAKEYA_PRESETS"
SHARED = f"{FOLDER}/{PRESETS}"


def find_presets(
    git: Git | None, remote: str, named: Path | str | None = None, *, ask: bool = True
) -> Presets:
    """Return all presets that a requester here can ask for, with the place that each comes from.

    Outside a repository (``git`` is None), only the named folder and the built-in presets count. Without ``ask``, the
    bus's presets are those that this clone saw last.

    Raises:
        PresetError: the named folder does not exist.
    """
    layers: list[Layer] = []
    notes: list[str] = []
    if git is not None:
        bus = read_bus_folder(git, remote, ask=ask)
        unread = {path: PresetError(f"{path} is not read: {reason}") for path, reason in bus.unread.items()}
        prefix = f"{PRESETS}/"
        files: dict[str, File] = {**bus.files, **unread}
        shared = {path.removeprefix(prefix): file for path, file in files.items() if path.startswith(prefix)}
        layers.append(Layer(f"{SHARED} on {bus.branch}", shared))
        if bus.problem and ask:
            notes.append(f"the presets on the bus are those that were last seen: {bus.problem}")
        if own := _own_folder(git):
            layers.append(own)
    if folder := named or environment.get(VARIABLE):
        layers.append(folder_layer(environment.expand(folder), str(folder)))
    return load_layers(layers, notes)


def _own_folder(git: Git) -> Layer | None:
    top = git.top()
    folder = Path(top, SHARED) if top else None
    if folder is None or not folder.is_dir():
        return None
    layer = folder_layer(folder, SHARED)
    # The folder may be a stranger's, as in a checkout of a pull request. Sort its presets before its schemas.
    files = sorted(layer.files.items(), key=lambda file: (file[0].endswith(".json"), file[0]))
    return Layer(SHARED, dict(islice(files, limits.BUS_FILES)))


def write_preset(preset: Preset, folder: Path) -> Path:
    """Write a preset into a folder, complete in one file, so that a runner can load it. Returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{preset.name}.yaml"
    path.write_text(yaml.safe_dump(preset.model_dump(mode="json"), sort_keys=False), encoding="utf-8")
    return path
