"""Reads presets from YAML files, with the fragments that several presets share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridge.common.advice import Advice, command
from bridge.common.validation import describe_all, near
from bridge.errors import PresetError
from bridge.presets.model import Preset, Step, did_you_mean
from bridge.presets.schema_files import with_schemas
from bridge.system.local_files import stamp
from bridge.system.strict_yaml import parse_yaml, read_yaml

FRAGMENTS = "_fragments.yaml"
# Endings of presets, of files that were probably meant as presets, and of schemas for kinds of report.
ENDINGS = (".yaml", ".yml", ".json")
# Keys that name fragments. Before the check, the fragments' content replaces them.
_USE = {Preset: ["use"], Step: ["use"]}


INSTALLED = "built-in"

_FORMAT = "docs/presets.md describes the format."

# A file of presets: where it is, its content, or why it must not be read.
File = Path | bytes | PresetError


@dataclass(frozen=True)
class Layer:
    """Files of presets that come from one place, by their names."""

    # The place, for people.
    source: str
    files: Mapping[str, File]


@dataclass(frozen=True)
class Offer:
    """A runner that offers a preset, by its own record."""

    runner: str
    digest: str
    # Whether a pinned key signed the record. None: no key is pinned here, so anyone could have written it.
    signed: bool | None
    # The label of its bus, if there are several.
    bus: str = ""

    @property
    def voucher(self) -> str:
        """Who vouches for the record, for people."""
        return "signed by a pinned key" if self.signed else "an unknown runner: no pinned key signed this"


class Presets(dict[str, Preset]):
    """Presets by name in alphabetical order. ``broken`` holds the error of each file that cannot be used.

    ``sources`` says where each preset or error comes from. ``notes`` say what may be missing.
    """

    def __init__(
        self,
        presets: Mapping[str, Preset],
        broken: Mapping[str, PresetError],
        sources: Mapping[str, str] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        super().__init__(sorted(presets.items()))
        self.broken = dict(broken)
        self.sources = dict(sources or {})
        self.notes = list(notes)
        # The presets that are known from runners' announcements only, and the runners that offer each preset.
        self.announced: set[str] = set()
        self.offers: Mapping[str, Sequence[Offer]] = {}


def load_presets(folder: Path | str | None = None) -> Presets:
    """Read the installed presets and overlay those in ``folder``.

    A preset or fragment in ``folder`` replaces the installed one with the same name. A file that cannot be used is
    listed in ``broken``, and the installed preset with its name is not used either.

    Raises:
        PresetError: there is no such folder.
    """
    return load_layers([] if folder is None else [folder_layer(Path(folder), str(folder))])


def folder_layer(root: Path, source: str) -> Layer:
    """Return the presets in a folder.

    Raises:
        PresetError: there is no such folder.
    """
    if not root.is_dir():
        raise PresetError(f"there is no folder of presets at {root}", fix="Make it, or name another one.")
    return Layer(source, {path.name: path for ending in ENDINGS for path in root.glob(f"*{ending}")})


def load_layers(layers: Iterable[Layer], notes: Iterable[str] = ()) -> Presets:
    """Read the installed presets and overlay these layers, the last one on top.

    Each layer has the installed fragments and its own ones.
    """
    root = Path(str(files("presets")))
    installed, fragments = _installed(root, tuple(map(stamp, sorted(root.iterdir()))))
    presets = Presets(installed, installed.broken, installed.sources)
    for layer in layers:
        _lay_over(layer, presets, fragments)
    return Presets(presets, presets.broken, presets.sources, notes)


@lru_cache(maxsize=1)
def _installed(root: Path, _stamps: Sequence[object]) -> tuple[Presets, Mapping[str, Any]]:
    """Return the installed presets and fragments, read again only if a file changes: a server needs them often."""
    presets = Presets({}, {})
    fragments = _lay_over(folder_layer(root, INSTALLED), presets, {})
    return presets, fragments


def _lay_over(layer: Layer, presets: Presets, fragments: Mapping[str, Any]) -> dict[str, Any]:
    """Add a layer's presets, each of which replaces an earlier one of its name. Returns all fragments."""
    problem: PresetError | None = None
    merged = dict(fragments)
    try:
        if FRAGMENTS in layer.files:
            merged |= _read(FRAGMENTS, layer.files[FRAGMENTS])
    except PresetError as error:
        problem = error
    for name in layer.files:
        stem, _, ending = name.rpartition(".")
        if name == FRAGMENTS or ending == "json":
            continue
        if ending == "yml":
            if f"{stem}.yaml" not in layer.files:
                fix = f"Rename it to {stem}.yaml: other files are not read."
                presets.broken.setdefault(stem, PresetError(f"{name} is not read", fix=fix))
                presets.sources.setdefault(stem, layer.source)
            continue
        presets.pop(stem, None)
        presets.broken.pop(stem, None)
        presets.sources[stem] = layer.source
        try:
            if problem:
                raise problem
            presets[stem] = _load(name, layer.files, merged)
        except PresetError as error:
            presets.broken[stem] = error
    return merged


def find_preset(presets: Mapping[str, Preset], name: str) -> Preset:
    """Return the preset with this name; PresetError if there is none, or its file cannot be used."""
    if isinstance(presets, Presets) and (wrong := presets.broken.get(name)):
        message = f"the preset {name} cannot be used: {wrong.message}"
        raise PresetError(message, code="broken_preset", fix=wrong.fix)
    if name not in presets:
        fix = did_you_mean(name, presets) or Advice(command("presets"), " lists them all.")
        raise PresetError(f"there is no preset {name!r}", code="unknown_preset", fix=fix)
    return presets[name]


def _read(name: str, content: File) -> dict[str, Any]:
    """Read a file. A pipe in a folder would be waited for."""
    if isinstance(content, PresetError):
        raise content
    if isinstance(content, bytes):
        return parse_yaml(content, name)
    if not content.is_file():
        raise PresetError(f"cannot read {content}: it is not a regular file")
    return read_yaml(content)


def _load(name: str, files: Mapping[str, File], fragments: Mapping[str, Any]) -> Preset:
    raw = _read(name, files[name])
    merged: dict[str, Any] = {}
    used = raw.pop("use", [])
    if not isinstance(used, list) or not all(isinstance(fragment, str) for fragment in used):
        raise PresetError(f"{name}: use must be a list of fragments' names")
    for fragment in used:
        if not isinstance(fragments.get(fragment), dict):
            raise PresetError(
                f"{name}: there is no fragment {fragment!r} in {FRAGMENTS}{near(fragment, fragments)}"
            )
        merged = _merge(merged, fragments[fragment])
    merged = _merge(merged, raw)
    if isinstance(merged.get("steps"), list):
        merged["steps"] = [_put_together(step, fragments, name) for step in merged["steps"]]
    if "reports" in merged:
        try:
            merged["reports"] = with_schemas(merged["reports"], files)
        except PresetError as error:
            raise PresetError(f"{name}: {error.message}", fix=_FORMAT) from error
    try:
        preset = Preset.model_validate(merged)
    except ValidationError as error:
        message = f"{name}: {describe_all(error, Preset, merged, _USE)}"
        raise PresetError(message, fix=_FORMAT) from error
    if f"{preset.name}.yaml" != name:
        raise PresetError(f"{name}: the preset is called {preset.name!r}; file and name must agree")
    return preset


def _put_together(step: Any, fragments: Mapping[str, Any], file: str) -> Any:
    """Return a step with the parts of its command in order, its own argv last. A malformed step is not changed."""
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
                f"{file}: there is no piece of a command {name!r} in {FRAGMENTS}{near(name, pieces)}"
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
