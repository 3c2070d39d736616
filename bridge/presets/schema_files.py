"""Schemas of a preset's own kinds of report that stand in JSON files beside the preset's file.

A schema is read when the preset is, and becomes a part of it: the preset's digest covers it, and a runner announces it
and puts it into answers. Whoever reads those needs no file.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.common import limits, strict_json
from bridge.common.validation import near
from bridge.errors import ManifestError, PresetError
from bridge.reports.own.model import MAX_KINDS, check_kind
from bridge.system.local_files import read_regular

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\.json")
_MAX_DEPTH = 32


def with_schemas(reports: Any, files: Mapping[str, Path | bytes | PresetError]) -> Any:
    """Return a preset's ``reports`` with each schema file's content in place of the file's name.

    A malformed entry stays unchanged. ``files`` are the files of the preset's folder, by name.

    Raises:
        PresetError: a schema's file is missing, leads out of the folder, is too large, or is no JSON object.
    """
    if not isinstance(reports, dict) or len(reports) > MAX_KINDS:
        return reports
    return {
        name: {**kind, "schema": _read(f"reports.{name}.schema", kind["schema"], files)}
        if isinstance(kind, dict) and isinstance(kind.get("schema"), str) and _is_kind(name)
        else kind
        for name, kind in reports.items()
    }


def _is_kind(name: Any) -> bool:
    try:
        return isinstance(name, str) and bool(check_kind(name))
    except ValueError:
        return False


def named_schemas(folder: Path) -> list[Path]:
    """Return the JSON files in a folder of presets whose names stand in one of its YAML files."""
    texts = [read_regular(path, limits.FILE_BYTES) or b"" for path in folder.glob("*.yaml")]
    return [
        path for path in sorted(folder.glob("*.json")) if any(path.name.encode() in text for text in texts)
    ]


def _read(key: str, name: str, files: Mapping[str, Path | bytes | PresetError]) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        rule = "must be a JSON Schema, or the name of a file beside the preset's that ends in .json"
        raise PresetError(f"{key}: {name[:100]!r} {rule}")
    if name not in files:
        beside = [each for each in files if _NAME.fullmatch(each)]
        raise PresetError(f"{key}: there is no file {name} beside the preset's{near(name, beside)}")
    try:
        title = f"{key}: {name}"
        schema = strict_json.loads(
            _content(title, files[name]), what=title, max_bytes=limits.BUS_FILE_BYTES, max_depth=_MAX_DEPTH
        )
    except ManifestError as error:
        raise PresetError(error.message) from error
    if not isinstance(schema, dict):
        raise PresetError(f"{title} is not a JSON object")
    return schema


def _content(title: str, file: Path | bytes | PresetError) -> bytes:
    if isinstance(file, PresetError):
        raise file
    if isinstance(file, bytes):
        return file
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(file.parent)):
        raise PresetError(f"{title} is a link that leads out of the folder of presets")
    content = read_regular(real, limits.BUS_FILE_BYTES)
    if content is None:
        raise PresetError(f"{title} cannot be read, or is larger than {limits.BUS_FILE_BYTES >> 10} KiB")
    return content
