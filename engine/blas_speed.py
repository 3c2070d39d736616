"""Measures how fast MLX multiplies float32 matrices on the CPU with the current BLAS."""

import time
from dataclasses import replace

from engine import blas


def in_use() -> blas.Blas:
    """Return the BLAS that MLX is bound to in this process, with its speed. Takes some 10 ms."""
    return replace(blas.in_use(), gflops=measure_gflops())


def measure_gflops(size: int = 512, repeats: int = 3) -> float:
    """Return the best of ``repeats`` float32 products of ``size``-square matrices on the CPU, in GFLOP/s."""
    from engine.mx import mx

    with mx.stream(mx.cpu):
        a = mx.random.normal((size, size))
        b = mx.random.normal((size, size))
        mx.eval(a, b, a @ b)
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            mx.eval(a @ b)
            best = min(best, time.perf_counter() - start)
    return round(2 * size**3 / best / 1e9, 1)
