"""Git LFS files of a request's tree: fetched by the runner itself, without git's filters or hooks."""

from runner.lfs.fill import Unfilled, fill, message
from runner.lfs.pointer import Pointer, parse_pointer

__all__ = ["Pointer", "Unfilled", "fill", "message", "parse_pointer"]
