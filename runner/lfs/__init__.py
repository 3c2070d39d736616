"""Git LFS files of a request's tree: fetched by the runner itself, without git's filters or hooks."""

from __future__ import annotations

from runner.lfs.fill import Left, fill, fill_from_bus, told
from runner.lfs.pointer import MAX_BYTES, Pointer, parse_pointer

__all__ = ["MAX_BYTES", "Left", "Pointer", "fill", "fill_from_bus", "parse_pointer", "told"]
