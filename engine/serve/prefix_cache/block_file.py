"""The file format of a stored block: a line with version, size and digest, then safetensors.

The reader trusts nothing: the digest covers everything after the first line, and every name, shape and size must be the
expected one. Arrays are stored as bytes (uint8, the last axis counts bytes); their types are those of the namespace's
forms. Nothing in the file is ever executed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from engine.mx import mx
from engine.serve.prefix_cache.namespace import PARTS, BlockNamespace, Form
from engine.serve.prefix_cache.snapshots import Snapshot

MARK, VERSION = b"kakeya-prefix", b"2"
MOST_HEADER = 1 << 20


class RefusedError(Exception):
    """A stored block cannot be used: ``version``, ``truncated``, ``damaged``, ``foreign`` or ``layout``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PendingBlock:
    """A block to be written. Its arrays are copied at once, so that another thread can do the rest.

    The ``groups`` are the snapshots of the caches, then the snapshots of the drafter's context.
    """

    def __init__(
        self, namespace: BlockNamespace, block_id: str, groups: Sequence[Sequence[Snapshot]]
    ) -> None:
        headers = [[[each.kind, each.codec, each.numbers] for each in group] for group in groups]
        parts, snapshots = json.dumps(namespace.parts), json.dumps(headers)
        self._metadata = {"id": block_id, "parts": parts, "snapshots": snapshots}
        self._arrays = {
            f"{g}.{i}.{j}": np.array(mx.contiguous(x).view(mx.uint8))
            for g, group in enumerate(groups)
            for i, snapshot in enumerate(group)
            for j, x in enumerate(snapshot.arrays)
            if x is not None
        }
        self.nbytes = sum(x.nbytes for x in self._arrays.values())

    def encoded(self) -> bytes:
        """Return the file."""
        content: bytes = save(self._arrays, self._metadata)
        digest = hashlib.sha256(content).hexdigest().encode()
        return b" ".join([MARK, VERSION, str(len(content)).encode(), digest]) + b"\n" + content


def largest(namespace: BlockNamespace) -> int:
    """Return the maximum size of a block's file, in bytes."""
    forms = (*namespace.caches, *namespace.context)
    sizes = (prod(_stored_shape(*array, form.most)) for form in forms for array in form.arrays if array)
    return MOST_HEADER + sum(sizes)


def decoded(data: bytes, namespace: BlockNamespace, block_id: str, end: int) -> list[list[Snapshot]]:
    """Check a file and return the snapshots of the caches and of the drafter's context, with arrays of bytes.

    RefusedError if the file is not exactly the expected block, at whose end the prompt has ``end`` tokens.
    """
    content = _content(data)
    try:
        arrays = load(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        parts, headers = json.loads(metadata["parts"]), json.loads(metadata["snapshots"])
        stored_id = metadata["id"]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError("damaged", "its header cannot be read") from error
    if parts != namespace.parts:
        by_part = parts if isinstance(parts, dict) else {}
        others = [name for name in PARTS if by_part.get(name) != namespace.parts[name]]
        raise RefusedError("foreign", f"it was made with another {' and '.join(others) or 'set of digests'}")
    if stored_id != block_id:
        raise RefusedError("foreign", "it holds another block than its name says")
    groups: list[list[Snapshot]] = []
    try:
        for g, forms in enumerate((namespace.caches, namespace.context)):
            groups.append([])
            for i, (header, form) in enumerate(zip(headers[g], forms, strict=True)):
                own = [arrays.pop(f"{g}.{i}.{j}", None) for j in range(len(form.arrays))]
                groups[g].append(_checked(header, form, own, end))
    except (ValueError, TypeError, LookupError) as error:
        raise RefusedError("layout", "its header describes other caches") from error
    if arrays or len(headers) > len(groups):
        raise RefusedError("layout", "it has more arrays than its caches take")
    return groups


def _content(data: bytes) -> bytes:
    """Return the content after a file's first line; RefusedError if it does not match that line."""
    first, _, content = data.partition(b"\n")
    words = first.split(b" ")
    if words[0] != MARK:
        raise RefusedError("damaged", "it does not begin as a stored prefix does")
    if words[1:2] != [VERSION]:
        raise RefusedError("version", f"this server reads version {VERSION.decode()} alone")
    if words[2:3] != [str(len(content)).encode()]:
        raise RefusedError("truncated", f"it has {len(content)} bytes, and its first line says otherwise")
    if words[3:] != [hashlib.sha256(content).hexdigest().encode()]:
        raise RefusedError("damaged", "its digest is not that of its content")
    return content


def on_device(
    groups: list[list[Snapshot]], namespace: BlockNamespace
) -> tuple[list[Snapshot], list[Snapshot]]:
    """Return a decoded block's snapshots with MLX arrays. Call it in the engine's thread."""

    def restored(snapshot: Snapshot, form: Form) -> Snapshot:
        pairs = zip(snapshot.arrays, form.arrays, strict=True)
        arrays = [mx.array(x).view(getattr(mx, array[0])) if array else None for x, array in pairs]
        return replace(snapshot, arrays=arrays)

    caches, context = groups
    return list(map(restored, caches, namespace.caches)), list(map(restored, context, namespace.context))


def _stored_shape(dtype: str, shape: Sequence[int], length: int) -> tuple[int, ...]:
    """Return the shape of an array's bytes; ``length`` is that of axis 2 if it is not 0."""
    *outer, last = (*shape[:2], length, *shape[3:]) if length else shape
    return (*outer, last * getattr(mx, dtype).size)


def _checked(header: Any, form: Form, arrays: list[np.ndarray | None], end: int) -> Snapshot:
    """Return a snapshot; RefusedError, ValueError or TypeError if the snapshot does not match the form."""
    kind, codec, numbers = header
    if (kind, codec) != (form.kind, form.codec):
        raise RefusedError("layout", "a cache is of another kind or codec")
    length = next((x.shape[2] for x in arrays if x is not None and x.ndim > 2), 0) if form.most else 0  # noqa: PLR2004
    shapes = [None if each is None else _stored_shape(*each, length) for each in form.arrays]
    if [None if x is None else x.shape for x in arrays] != shapes or length > form.most:
        raise RefusedError("layout", "an array has another shape")
    if any(x is not None and x.dtype != np.uint8 for x in arrays):
        raise RefusedError("layout", "an array is not stored as bytes")
    if form.kind == "ring":
        offset, index = numbers
        if type(offset) is not int or type(index) is not int or offset != end or not 0 <= index <= length:
            raise RefusedError("layout", "the positions of a ring cache do not fit the block")
    elif numbers != []:
        raise RefusedError("layout", "a cache ends elsewhere")
    return Snapshot(form.kind, arrays, numbers, form.codec)
