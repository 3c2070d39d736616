"""The text of the decode-attention kernel for each backend, from one core (``decode_attention.h``)."""

from dataclasses import dataclass
from importlib.resources import files

FILE = "decode_attention.h"
_TEXT = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
THREADS = 64

_METAL = """
#define KK_BYTES const device uint8_t*
#define KK_SHARED threadgroup
#define KK_SYNC threadgroup_barrier(mem_flags::mem_threadgroup)
#define KK_FN inline
#define KK_LOCAL thread
#define KK_EXP(x) metal::exp(x)
#define KK_EXP2(x) metal::exp2(x)
"""
_CUDA = """
#define KK_BYTES const uint8_t*
#define KK_SHARED __shared__
#define KK_SYNC __syncthreads()
#define KK_FN __device__ inline
#define KK_LOCAL
#define KK_EXP(x) expf(x)
#define KK_EXP2(x) exp2f(x)
"""
_WHERE = {
    "metal": """
uint kk_thread = thread_position_in_threadgroup.x;
uint kk_split = threadgroup_position_in_grid.x;
uint kk_row = threadgroup_position_in_grid.y;
""",
    "cuda": """
unsigned kk_thread = threadIdx.x;
unsigned kk_split = blockIdx.x;
unsigned kk_row = blockIdx.y;
""",
}


@dataclass(frozen=True)
class Shape:
    """The constants of a compiled kernel: head sizes of keys and values, and bits of a field."""

    dim: int
    value_dim: int
    bits: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"kakeya_decode_{self.dim}_{self.value_dim}_{self.bits}"

    @property
    def defines(self) -> str:
        """The constants as text for the preprocessor."""
        numbers = {"DIM": self.dim, "VALUE_DIM": self.value_dim, "BITS": self.bits, "THREADS": THREADS}
        return "".join(f"#define KK_{name} {number}\n" for name, number in numbers.items())

    @property
    def fits(self) -> bool:
        """Whether a group has a thread for every block of a value."""
        return self.value_dim // 8 <= THREADS


def core() -> str:
    """Return the functions of the core."""
    return _TEXT.split("#ifdef KK_BODY")[0]


def body() -> str:
    """Return the statements of the kernel."""
    return _TEXT.split("#ifdef KK_BODY")[1].split("#endif  // KK_BODY")[0]


def header(backend: str, shape: Shape) -> str:
    """Return the source before the kernel, for ``metal`` or ``cuda``."""
    return {"metal": _METAL, "cuda": _CUDA}[backend] + shape.defines + core()


def source(backend: str) -> str:
    """Return the kernel's source."""
    return _WHERE[backend] + body()
