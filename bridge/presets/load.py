"""Reads presets from YAML files, with the fragments that several presets share."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridge.common.validation import describe_all, near
from bridge.errors import PresetError
from bridge.presets.model import Preset, Step, did_you_mean
from bridge.system.strict_yaml import read_yaml

FRAGMENTS = "_fragments.yaml"
# Keys of the file that are replaced by what they name before the preset is checked.
_USE = {Preset: ["use"], Step: ["use"]}


class Presets(dict[str, Preset]):
    """Presets by name in alphabetical order. ``broken`` holds the error of each file that cannot be used."""

    def __init__(self, presets: Mapping[str, Preset], broken: Mapping[str, PresetError]) -> None:
        super().__init__(sorted(presets.items()))
        self.broken = dict(broken)


def load_presets(folder: Path | str | None = None) -> Presets:
    """Read the installed presets and overlay those in ``folder``.

    A preset or fragment in ``folder`` replaces the installed one with the same name. A file that cannot be used is
    listed in ``broken``, and the installed preset with its name is not used either.

    Raises:
        PresetError: there is no such folder.
    """
    presets, fragments = Presets({}, {}), dict[str, Any]()
    _lay_over(Path(str(files("presets"))), presets, fragments)
    if folder is not None:
        _lay_over(Path(folder), presets, fragments)
    return Presets(presets, presets.broken)


def _lay_over(root: Path, presets: Presets, fragments: dict[str, Any]) -> None:
    """Add a folder's fragments and presets. Each replaces an earlier one of its name."""
    if not root.is_dir():
        raise PresetError(f"there is no folder of presets at {root}", fix="Make it, or name another one.")
    problem: PresetError | None = None
    try:
        fragments |= _read(root / FRAGMENTS) if (root / FRAGMENTS).exists() else {}
    except PresetError as error:
        problem = error
    for path in root.glob("*.yml"):
        fix = f"Rename it to {path.stem}.yaml: other files are not read."
        presets.broken.setdefault(path.stem, PresetError(f"{path.name} is not read", fix=fix))
    for path in root.glob("*.yaml"):
        if path.name == FRAGMENTS:
            continue
        presets.pop(path.stem, None)
        presets.broken.pop(path.stem, None)
        try:
            if problem:
                raise problem
            presets[path.stem] = _load(path, fragments)
        except PresetError as error:
            presets.broken[path.stem] = error


def find_preset(presets: Mapping[str, Preset], name: str) -> Preset:
    """Return the preset of that name. If there is none, or its file cannot be used, it is a PresetError."""
    if isinstance(presets, Presets) and (wrong := presets.broken.get(name)):
        message = f"the preset {name} cannot be used: {wrong.message}"
        raise PresetError(message, code="broken_preset", fix=wrong.fix)
    if name not in presets:
        fix = did_you_mean(name, presets) or "`kakeya presets` lists them all."
        raise PresetError(f"there is no preset {name!r}", code="unknown_preset", fix=fix)
    return presets[name]


def _read(path: Path) -> dict[str, Any]:
    """Read a file of a folder, in which a pipe would be waited for."""
    if not path.is_file():
        raise PresetError(f"cannot read {path}: it is not a regular file")
    return read_yaml(path)


def _load(path: Path, fragments: Mapping[str, Any]) -> Preset:
    raw = _read(path)
    merged: dict[str, Any] = {}
    used = raw.pop("use", [])
    if not isinstance(used, list) or not all(isinstance(fragment, str) for fragment in used):
        raise PresetError(f"{path.name}: use must be a list of fragments' names")
    for fragment in used:
        if not isinstance(fragments.get(fragment), dict):
            raise PresetError(
                f"{path.name}: there is no fragment {fragment!r} in {FRAGMENTS}{near(fragment, fragments)}"
            )
        merged = _merge(merged, fragments[fragment])
    merged = _merge(merged, raw)
    if isinstance(merged.get("steps"), list):
        merged["steps"] = [_put_together(step, fragments, path) for step in merged["steps"]]
    try:
        preset = Preset.model_validate(merged)
    except ValidationError as error:
        message = f"{path.name}: {describe_all(error, Preset, merged, _USE)}"
        raise PresetError(message, fix="docs/presets.md describes the format.") from error
    if preset.name != path.stem:
        raise PresetError(f"{path.name}: the preset is called {preset.name!r}; file and name must agree")
    return preset


def _put_together(step: Any, fragments: Mapping[str, Any], path: Path) -> Any:
    """Return a step with the pieces of its command in order, its own argv last. What is malformed stays as it is."""
    if not isinstance(step, dict) or not isinstance(step.get("use"), list):
        return step
    argv: list[Any] = []
    for name in step["use"]:
        piece = fragments.get(name) if isinstance(name, str) else None
        pieces = [
            key for key, value in fragments.items() if isinstance(value, dict) and value.keys() == {"argv"}
        ]
        if not isinstance(piece, dict) or piece.keys() != {"argv"} or not isinstance(piece["argv"], list):
            raise PresetError(
                f"{path.name}: there is no piece of a command {name!r} in {FRAGMENTS}{near(name, pieces)}"
            )
        argv += piece["argv"]
    own = step.get("argv", [])
    rest = {key: value for key, value in step.items() if key != "use"}
    return rest | {"argv": [*argv, *own] if isinstance(own, list) else own}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: mappings merge, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
