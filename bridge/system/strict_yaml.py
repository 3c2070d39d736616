"""Strict YAML for files that people write: plain data only, no duplicate keys, limited size."""

import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bridge.errors import KakeyaError, PresetError

MAX_BYTES = 256 * 1024
# The loader written in C crashes the process at a depth of some ten thousand.
MAX_DEPTH = 32
# Limit of values, counted again for each alias. The largest allowed file without aliases has fewer.
MAX_VALUES = 200_000


if TYPE_CHECKING:
    _Safe = yaml.SafeLoader
else:
    # The loader written in C is ten times as fast, but not part of every build.
    _Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    """YAML with plain data only, with each key named once, and without numbers that other versions read differently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = (self.construct_object(key, deep=True) for key, _ in node.value)
        counts = Counter(key for key in keys if isinstance(key, Hashable))
        if twice := [key for key, times in counts.items() if times > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        construct = self.construct_yaml_int if node.tag.endswith("int") else self.construct_yaml_float
        number: float = construct(node)
        if re.match(r"[-+]?0[0-9_]+\Z|.*:", node.value):
            message = f"{node.value} is {number} in YAML 1.1 alone: write a decimal number, or quote a text"
            raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return number


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def read_yaml(path: Path, error: type[KakeyaError] = PresetError) -> dict[str, Any]:
    """Read a YAML file that holds one mapping. Raises ``error``, which names the file and the line."""
    try:
        # Read at most this many bytes: the path may be a link to a device.
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from problem
    return parse_yaml(text, str(path), error)


def parse_yaml(text: bytes, where: str, error: type[KakeyaError] = PresetError) -> dict[str, Any]:
    """Read the content of a YAML file that holds one mapping. Raises ``error``, which names ``where`` and the line."""
    if len(text) > MAX_BYTES:
        raise error(f"{where} is larger than {MAX_BYTES} bytes")
    try:
        _check(text)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise error(f"{where} is not valid YAML: {' '.join(str(problem).split())}") from problem
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise error(f"{where} must hold one mapping of names to values")
    return value


@dataclass
class _Open:
    """A collection that is being read: the depth of nesting inside it, and the number of its values."""

    anchor: str | None = None
    depth: int = 0
    values: int = 0

    def add(self, depth: int, values: int) -> None:
        self.depth = max(self.depth, depth)
        self.values += values


def _check(text: bytes) -> None:
    """Raise ValueError for a text that unfolds to too many values. Nothing is built, and reading stops there.

    A few lines of aliases can repeat one value more often than there are atoms, or put a value inside itself.
    """
    known: dict[str | None, tuple[int, int]] = {}
    stack = [_Open()]
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(_Open(event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = stack.pop()
            known[ended.anchor] = ended.depth + 1, ended.values + 1
            stack[-1].add(*known[ended.anchor])
        elif isinstance(event, yaml.ScalarEvent):
            known[event.anchor] = 0, 1
            stack[-1].add(0, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in [outer.anchor for outer in stack]:
                raise ValueError(f"{event.anchor!r} holds itself")
            stack[-1].add(*known.get(event.anchor, (0, 1)))
        if len(stack) - 1 + stack[-1].depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        if stack[-1].values > MAX_VALUES:
            raise ValueError(f"it holds more than {MAX_VALUES} values")
