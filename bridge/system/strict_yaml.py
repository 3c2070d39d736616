"""Strict YAML for files that people write: plain data only, no duplicate keys, no aliases, limited size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bridge.errors import KakeyaError, PresetError

MAX_BYTES = 256 * 1024
# The loader written in C crashes the process at a depth of some ten thousands.
MAX_DEPTH = 32

if TYPE_CHECKING:
    _Safe = yaml.SafeLoader
else:
    # The loader written in C is ten times as fast, but not part of every build.
    _Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """YAML with plain data only, and with each key named once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if isinstance(key, str) and keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path, error: type[KakeyaError] = PresetError) -> dict[str, Any]:
    """Read a YAML file that holds one mapping. Raises ``error``, which names the file and the line."""
    try:
        # Read at most this many bytes: the path may be a link to a device.
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise error(f"{path} is larger than {MAX_BYTES} bytes")
        _check(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from problem
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise error(f"{path} is not valid YAML: {' '.join(str(problem).split())}") from problem
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise error(f"{path} must hold one mapping of names to values")
    return value


def _check(text: bytes) -> None:
    """Raise ValueError for a text that is nested deeply, or has aliases, which unfold to more values than it has."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"*{event.anchor} is an alias: write the value again")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
