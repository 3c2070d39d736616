"""YAML as people write it, without its traps: plain data only, each key once, bounded in size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bridge.errors import KakeyaError, PresetError

MAX_BYTES = 256 * 1024


class _Loader(yaml.SafeLoader):
    """YAML with plain data only, and with each key named once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if isinstance(key, str) and keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path, error: type[KakeyaError] = PresetError) -> dict[str, Any]:
    """Read a YAML file that holds one mapping. Raises `error`, which names the file and the line."""
    try:
        text = path.read_bytes()
        if len(text) > MAX_BYTES:
            raise error(f"{path} is larger than {MAX_BYTES} bytes")
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from problem
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise error(f"{path} is not valid YAML: {' '.join(str(problem).split())}") from problem
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise error(f"{path} must hold one mapping of names to values")
    return value
