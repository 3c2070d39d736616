"""Git LFS files of a request's tree: fetched by the runner itself, without git's filters or hooks."""

from __future__ import annotations

from runner.lfs.fill import Unfilled, fill, fill_from_bus, message
from runner.lfs.pointer import MAX_BYTES, Pointer, parse_pointer

__all__ = ["MAX_BYTES", "Pointer", "Unfilled", "fill", "fill_from_bus", "message", "parse_pointer"]
