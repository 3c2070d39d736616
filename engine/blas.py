"""Loads a fast BLAS for MLX's CPU backend on Linux.

The Linux wheels of MLX bundle the reference BLAS, which is one to two orders of magnitude slower in float32 than
OpenBLAS. A library that is loaded with ``RTLD_GLOBAL`` comes first when the loader resolves MLX's ``cblas_*``
symbols, so loading OpenBLAS *before* ``mlx.core`` is imported replaces the bundled one.

The libraries are tried in this order:

1. The library that ``KAKEYA_OPENBLAS`` names, and no other; ``off`` keeps MLX's own.
2. The one in the package ``scipy-openblas32``, which the ``[cpu]`` extra pins. It comes before the system's
   library, so that every installation of a release computes with the same, tested library. Later releases of
   that package prefix their symbols; such a library is skipped.
3. The system's library.

A missing library is never an error; ``in_use`` returns the library that is bound. OpenBLAS reads its number of
threads from ``OPENBLAS_NUM_THREADS`` when it is loaded; the number can be changed later. Accelerate and GPUs schedule
their work themselves, and MLX's own BLAS has one thread.
"""

import ctypes
import sys
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from importlib import util
from pathlib import Path

from bridge.common import environment

VARIABLE = "KAKEYA_OPENBLAS"
PACKAGE = "scipy_openblas32"
SYSTEM = "libopenblas.so.0"
PRODUCT = "cblas_sgemm"  # the symbol that MLX calls
# OpenBLAS reads the first of these variables that is set when it is loaded.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
# OpenBLAS's names for the cores (AVX-512) for which it has kernels for small products.
_WITH_SMALL_KERNELS = ("SkylakeX", "Cooperlake", "SapphireRapids")


@dataclass(frozen=True)
class Preload:
    """What ``preload`` did."""

    tried: str  # the library asked for; empty if none was
    loaded: bool  # whether it is in the process now, in time for MLX
    reason: str = ""  # why not, where it is not


@dataclass(frozen=True)
class Blas:
    """The library that MLX's float32 matrix products on the CPU are bound to."""

    name: str  # `openblas`, `accelerate`, `bundled` (the wheel's reference BLAS) or `unknown`
    library: str = ""  # the file, where the platform tells
    gflops: float | None = None  # measured in float32 through `mx.matmul`; None if it was not measured

    def as_dict(self) -> dict[str, object]:
        """Return the fields as plain data for a report."""
        return asdict(self)


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of ``dlfcn.h``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def preload() -> Preload:
    """Load OpenBLAS for MLX, once per process, before ``mlx.core`` is imported; ``engine.mx`` calls this.

    If ``mlx.core`` was imported before, a ``RuntimeWarning`` says so.
    """
    wanted = environment.get(VARIABLE)
    if wanted == "off":
        return Preload("", loaded=False, reason=f"{VARIABLE}=off")
    if sys.platform != "linux":
        return Preload("", loaded=False, reason="this platform brings its own BLAS")
    if "mlx.core" in sys.modules:
        reason = "mlx.core was imported before the engine"
        warnings.warn(
            f"{reason}: it multiplies float32 matrices with its own slow BLAS. Import the engine first.",
            RuntimeWarning,
            stacklevel=2,
        )
        return Preload("", loaded=False, reason=reason)
    reasons = []
    for name in (wanted,) if wanted else candidates():
        reason = _load(name)
        if not reason:
            return Preload(name, loaded=True)
        reasons.append(reason)
    return Preload(wanted or SYSTEM, loaded=False, reason="; ".join(reasons))


def candidates() -> tuple[str, ...]:
    """Return the libraries to try if none is configured: the package's, then the system's."""
    spec = util.find_spec(PACKAGE)  # does not import it: that would load the library
    folders = spec.submodule_search_locations or () if spec else ()
    packaged = (
        str(path) for folder in folders for path in sorted(Path(folder, "lib").glob("libopenblas*.so*"))
    )
    return (*packaged, SYSTEM)


def _load(name: str) -> str:
    """Load a library for the whole process; return why MLX cannot use it, or an empty string."""
    try:
        library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return "" if hasattr(library, PRODUCT) else f"{name} does not export {PRODUCT}"


def in_use() -> Blas:
    """Return the BLAS that MLX is bound to in this process; ``engine.blas_speed`` measures its speed.

    On Linux, this is the file whose ``cblas_sgemm`` the global symbol scope resolves to, because MLX's references
    go through this scope first. If nothing global provides the symbol, MLX uses its own BLAS.
    """
    if sys.platform == "darwin":
        return Blas("accelerate")
    library = _global_sgemm() or _mapped("libblas", "libcblas")
    return Blas(_family(library), library)


@cache
def _openblas() -> ctypes.CDLL | None:
    """Return the OpenBLAS that MLX is bound to; None for another BLAS, or if its functions have other names."""
    try:
        library = ctypes.CDLL(in_use().library) if in_use().name == "openblas" else None
        if library is not None:
            library.openblas_set_num_threads.argtypes = [ctypes.c_int]
            library.openblas_get_corename.restype = ctypes.c_char_p
    except (AttributeError, OSError):
        return None
    return library


def core() -> str:
    """Return OpenBLAS's name for the CPU cores that it computes for, such as ``Haswell``; empty for another BLAS."""
    return str(library.openblas_get_corename().decode()) if (library := _openblas()) else ""


def has_small_kernels() -> bool:
    """Return whether OpenBLAS multiplies small matrices directly, without copying them into another order first."""
    return core() in _WITH_SMALL_KERNELS


def most_threads() -> int | None:
    """Return the number of processors that OpenBLAS may use; None if its threads cannot be set."""
    return int(library.openblas_get_num_procs()) if (library := _openblas()) else None


def threads() -> int | None:
    """Return the number of threads that OpenBLAS computes with now; None if it cannot be set."""
    return int(library.openblas_get_num_threads()) if (library := _openblas()) else None


def use_threads(count: int) -> None:
    """Compute with this many threads from now on. Call this only while no product is being computed."""
    if library := _openblas():
        library.openblas_set_num_threads(count)


def threads_are_given() -> bool:
    """Return whether the environment sets the number of threads."""
    return any(environment.get(name) for name in THREAD_VARIABLES)


def _global_sgemm() -> str:
    """Return the file behind ``cblas_sgemm`` in the global scope, or an empty string."""
    program = ctypes.CDLL(None)
    try:
        symbol = program.cblas_sgemm
        dladdr = program.dladdr
    except AttributeError:
        return ""
    info = _SymbolInfo()
    if not dladdr(ctypes.cast(symbol, ctypes.c_void_p), ctypes.byref(info)) or not info.file:
        return ""
    return str(Path(info.file.decode()).resolve())


def _mapped(*names: str) -> str:
    """Return the first file mapped into this process whose name begins with one of ``names``."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    paths = (Path(line.split(maxsplit=5)[-1]) for line in lines if "/" in line)
    return next((str(path) for path in paths if path.name.startswith(names)), "")


def _family(library: str) -> str:
    if not library:
        return "unknown"
    name = Path(library).name
    return "openblas" if "openblas" in name else "bundled" if "mlx" in library else name.split(".")[0]
