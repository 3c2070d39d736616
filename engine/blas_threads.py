"""The number of threads that OpenBLAS computes with, which can change while a process runs.

Only OpenBLAS has such a number. Accelerate and a GPU schedule their work themselves, and MLX's own BLAS has one thread.
"""

import ctypes
from functools import cache

from bridge.common import environment
from engine import blas

# OpenBLAS reads the first of these variables that is set when it is loaded.
VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


@cache
def _library() -> ctypes.CDLL | None:
    """Return the OpenBLAS that MLX is bound to; None for another BLAS, or if its functions have other names."""
    path = blas.in_use()
    if path.name != "openblas":
        return None
    try:
        library = ctypes.CDLL(path.library)
        library.openblas_set_num_threads.argtypes = [ctypes.c_int]
    except (AttributeError, OSError):
        return None
    return library


def most() -> int | None:
    """Return the number of processors that OpenBLAS may use; None if its threads cannot be set."""
    library = _library()
    return None if library is None else int(library.openblas_get_num_procs())


def current() -> int | None:
    """Return the number of threads now; None if it cannot be set."""
    library = _library()
    return None if library is None else int(library.openblas_get_num_threads())


def use(count: int) -> None:
    """Compute with this many threads from now on. Call this only while no product is being computed."""
    library = _library()
    if library is not None:
        library.openblas_set_num_threads(count)


def is_given() -> bool:
    """Return whether the environment sets the number of threads."""
    return any(environment.get(name) for name in VARIABLES)
