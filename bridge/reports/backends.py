"""The parts of a report that compares the engine's two backends, MLX and torch."""

from typing import Annotated

from pydantic import Field, StringConstraints

from bridge.reports.parts import Measure, Positive, ReportModel, Text, Word
from bridge.reports.rows import Decode

# The beginning of the SHA-256 of a row of codes.
Code = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class Backend(ReportModel):
    """Where and how a backend computed. Each computes in a process of its own."""

    device: Text
    dtype: Text
    # The library that multiplies float32 matrices on the CPU: packed tokens depend on its rounding.
    blas: Text
    versions: Annotated[dict[Word, Word | None], Field(min_length=1, max_length=20)]
    threads: Positive | None = None


class Backends(ReportModel):
    """Both backends."""

    mlx: Backend
    torch: Backend


class BackendRow(Decode):
    """One backend over one cache on one prompt: always so many greedy tokens, past the natural end of answers."""

    # The seconds between each token and the next, whose sum is `decode_s`; and the processor's for all of them.
    step_s: Annotated[list[Measure], Field(max_length=1_000_000, fail_fast=True)]
    processor_s: Measure
    prefill_processor_s: Measure | None = None
    # The most memory that the backend's process has occupied so far, weights and all.
    process_peak_bytes: Positive
    # Digests of the rows of codes that equal vectors get, of keys and then of values. Only the first counted row has
    # them, and only over a packed cache; the same holds for `prediction`, which the raw cache of MLX has not.
    codes: Annotated[list[Code], Field(max_length=10_000, fail_fast=True)] | None = None
