"""The file format of a stored block: a line with version and digest, a line of JSON, then the arrays.

The reader trusts nothing: the digest covers everything after it, and every name, type, shape and size must be the
expected one. Nothing in the file is ever executed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from engine.mx import mx
from engine.serve.prefix_cache.shelf import PARTS, Form, Shelf, form_of
from engine.serve.prefix_cache.snapshots import Snapshot

MARK = b"kakeya-prefix"
VERSION = b"1"
MOST_LINE, MOST_HEADER = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Raw:
    """An array in a file: the name of its type, and its bytes as a uint8 array (the last axis counts bytes)."""

    dtype: str
    data: Any


@dataclass(frozen=True)
class Plain:
    """A snapshot in a file."""

    form: Form
    numbers: list[int]
    arrays: list[Raw | None]


class RefusedError(Exception):
    """A stored block cannot be used.

    Args:
        reason: ``version``, ``truncated``, ``damaged``, ``foreign`` or ``layout``.
        message: what is wrong with it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Draft:
    """A block that will be written: its arrays are copied at once, and another thread can do the rest.

    Args:
        shelf: where it belongs.
        block_id: of the chain.
        parts: the snapshots of the caches, then those of the drafter's context.
    """

    def __init__(self, shelf: Shelf, block_id: str, parts: Sequence[Sequence[Snapshot]]) -> None:
        self.block_id = block_id
        headers = [[_header(each) for each in snapshots] for snapshots in parts]
        self._header = json.dumps({"id": block_id, "parts": shelf.parts, "snapshots": headers}).encode()
        self._arrays = [_bytes(x) for part in parts for each in part for x in each.arrays if x is not None]
        self.nbytes = len(self._header) + sum(map(len, self._arrays))

    def encoded(self) -> bytes:
        """Return the file."""
        content = b"".join([self._header, b"\n", *self._arrays])
        digest = hashlib.sha256(content).hexdigest().encode()
        return b" ".join([MARK, VERSION, str(len(content)).encode(), digest]) + b"\n" + content


def largest(shelf: Shelf) -> int:
    """Return the maximum size of a block's file, in bytes."""
    return MOST_HEADER + sum(_most(form) for form in (*shelf.caches, *shelf.context))


def decoded(data: bytes, shelf: Shelf, block_id: str, end: int) -> list[list[Plain]]:
    """Check a file and return its snapshots: of the caches, and of the drafter's context.

    Args:
        data: the file.
        shelf: where it was found.
        block_id: the expected block.
        end: how many tokens the prompt has at the block's end.

    Raises:
        RefusedError: the file is not exactly the expected block.
    """
    first, _, _ = data[:MOST_LINE].partition(b"\n")
    words = first.split(b" ")
    if words[0] != MARK:
        raise RefusedError("damaged", "it does not begin as a stored prefix does")
    if len(words) < 2 or words[1] != VERSION:  # noqa: PLR2004 - mark and version
        raise RefusedError("version", f"this server reads version {VERSION.decode()} alone")
    content = memoryview(data)[len(first) + 1 :]
    if len(words) != 4 or words[2] != str(len(content)).encode():  # noqa: PLR2004 - all four words
        raise RefusedError("truncated", f"it has {len(content)} bytes, and its first line says otherwise")
    if hashlib.sha256(content).hexdigest().encode() != words[3]:
        raise RefusedError("damaged", "its digest is not that of its content")
    at = data.find(b"\n", len(first) + 1, len(first) + 1 + MOST_HEADER)
    try:
        header = json.loads(data[len(first) + 1 : at])
        parts, headers, found_id = header["parts"], header["snapshots"], header["id"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError("damaged", "its header cannot be read") from error
    if parts != shelf.parts:
        by_part = parts if isinstance(parts, dict) else {}
        others = [name for name in PARTS if by_part.get(name) != shelf.parts[name]]
        raise RefusedError("foreign", f"it was made with another {' and '.join(others) or 'set of digests'}")
    if found_id != block_id:
        raise RefusedError("foreign", "it holds another block than its name says")
    return _checked(headers, memoryview(data)[at + 1 :], shelf, end)


def on_device(snapshots_read: list[Plain]) -> list[Snapshot]:
    """Return snapshots with MLX arrays. Call it in the engine's thread."""
    return [
        Snapshot(each.form.kind, [_array(raw) for raw in each.arrays], each.numbers, each.form.codec)
        for each in snapshots_read
    ]


def _array(raw: Raw | None) -> mx.array | None:
    return None if raw is None else mx.array(raw.data).view(getattr(mx, raw.dtype))


def _header(snapshot: Snapshot) -> list[Any]:
    form = form_of(snapshot, 0)
    return [form.kind, form.codec, snapshot.numbers, form.arrays]


def _bytes(x: mx.array) -> bytes:
    return np.asarray(mx.contiguous(x).view(mx.uint8)).tobytes()


def _most(form: Form) -> int:
    return sum(_size(dtype, _longest(shape, form.most)) for dtype, shape in filter(None, form.arrays))


def _longest(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    return (*shape[:2], most, *shape[3:]) if most else shape


def _size(dtype: str, shape: Sequence[int]) -> int:
    size: int = getattr(mx, dtype).size
    return prod(shape) * size


def _checked(headers: Any, payload: memoryview, shelf: Shelf, end: int) -> list[list[Plain]]:
    """Return the header's snapshots. Each is compared with its expected form and cut out of the payload."""
    forms = [shelf.caches, shelf.context]
    if not isinstance(headers, list) or [len(each) if isinstance(each, list) else -1 for each in headers] != [
        len(each) for each in forms
    ]:
        raise RefusedError("layout", "it has another number of caches")
    groups: list[list[Plain]] = []
    at = 0
    for group, expected in zip(headers, forms, strict=True):
        snapshots_of_part = []
        for each, form in zip(group, expected, strict=True):
            shapes, numbers = _fitting(each, form, end)
            arrays: list[Raw | None] = []
            for dtype, shape in shapes:
                size = _size(dtype, shape) if shape is not None else 0
                if at + size > len(payload):
                    raise RefusedError("truncated", "it has fewer bytes than its arrays take")
                arrays.append(None if shape is None else _raw(dtype, shape, payload[at : at + size]))
                at += size
            snapshots_of_part.append(Plain(form, numbers, arrays))
        groups.append(snapshots_of_part)
    if at != len(payload):
        raise RefusedError("layout", "it has more bytes than its arrays take")
    return groups


def _fitting(header: Any, form: Form, end: int) -> tuple[list[tuple[str, tuple[int, ...] | None]], list[int]]:
    """Return types and shapes of a snapshot's arrays, and its numbers; RefusedError if they do not match the form."""
    try:
        kind, codec, numbers, arrays = header
        lengths = set()
        shapes: list[tuple[str, tuple[int, ...] | None]] = []
        for entry, expected in zip(arrays, form.arrays, strict=True):
            if entry is None or expected is None:
                fits = entry is expected
                shapes.append(("", None))
            else:
                dtype, shape = entry
                length = shape[2] if form.most else 0
                fits = dtype == expected[0] and tuple(shape) == _longest(expected[1], length)
                fits &= all(type(n) is int for n in shape) and (not form.most or 1 <= length <= form.most)
                lengths.add(length)
                shapes.append((dtype, tuple(shape)))
            if not fits:
                raise RefusedError("layout", "an array has another type or shape")
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise RefusedError("layout", "its header tells of no such caches") from error
    wanted = [end, numbers[1] if _pair(numbers) else None] if form.kind == "ring" else []
    if (kind, codec) != (form.kind, form.codec) or len(lengths) > 1 or numbers != wanted:
        raise RefusedError("layout", "a cache is of another kind or codec, or ends elsewhere")
    if form.kind == "ring" and not 0 <= numbers[1] <= max(lengths):
        raise RefusedError("layout", "a ring begins outside of itself")
    return shapes, numbers


def _pair(numbers: Any) -> bool:
    return isinstance(numbers, list) and len(numbers) == 2 and all(type(n) is int for n in numbers)  # noqa: PLR2004


def _raw(dtype: str, shape: tuple[int, ...], payload: memoryview) -> Raw:
    size: int = getattr(mx, dtype).size
    flat = np.frombuffer(payload, np.uint8)
    return Raw(dtype, flat.reshape(*shape[:-1], shape[-1] * size))
