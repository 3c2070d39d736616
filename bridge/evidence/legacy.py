"""Reports of schema 2, written by an older harness: the fields that the rules check. Any field may be absent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bridge.evidence.parts import Count, Identity, Measure, Model, Number, Part
from bridge.evidence.rows import Memory

SCHEMA_VERSION = 2


class Fused(Part):
    """What the speculative loop counted."""

    blocks: Count | None = None


class Stage(Part):
    """One sample of one arm. ``order`` is later than the format: when the sample ran, counted over both arms."""

    restoration_active: bool | None = None
    prefill_s: Measure | None = None
    restored_prefill_s: Measure | None = None
    decode_s: Measure | None = None
    fused: Fused | None = None
    order: Count | None = None

    @property
    def prefill(self) -> float:
        """The seconds of prefill under their newer or older name, 0 if unknown."""
        return self.prefill_s or self.restored_prefill_s or 0.0


class Timed(Part):
    """The times of one arm."""

    tokens_per_second: Measure | None = None
    timing_scope: str | None = None
    eval_mode: str | None = None
    decode_loop: str | None = None
    stage_timings: Annotated[list[Stage], Field(fail_fast=True)] = Field(default=[])


class Samples(Part):
    """What one arm put out."""

    per_sample_decoded: Annotated[list[str], Field(fail_fast=True)] = Field(default=[])
    per_sample_correct: Annotated[list[bool], Field(fail_fast=True)] = Field(default=[])
    per_sample_decode_tokens: Annotated[list[Count], Field(fail_fast=True)] = Field(default=[])
    system_under_test: str | None = None


class Results(Part):
    """Both arms' output."""

    k3_cross_model: Samples = Samples()
    oracle: Samples = Samples()


class DecodeOnly(Part):
    """The quotient without prefill."""

    speedup: Measure | None = None


class Throughput(Part):
    """Both arms' times."""

    k3_cross_model: Timed = Timed()
    oracle_native_ar: Timed = Timed()
    decode_only: DecodeOnly | None = None
    cross_model_speedup_vs_oracle_ar: Measure | None = None


class Recalls(Part):
    """What is said of recall."""

    recall_cross_model: Measure | None = None
    recall_oracle: Measure | None = None


class Table(Part):
    """The table of bytes by formula."""

    formula_matches_run: bool | None = None


class Bytes(Part):
    """What is said of memory. ``live`` is later than the format: the arrays of both arms' caches."""

    savings_vs_naive_pct: Number | None = None
    s5: Table | None = None
    live: dict[Literal["k3_cross_model", "oracle"], Memory] = Field(default={})


class Legacy(Part):
    """A report of schema 2. ``identity`` and ``models`` are later than the format."""

    kind: Literal["k3_integrated_niah_acceptance_mac"]
    schema_version: Annotated[int, Field(ge=2, le=2)]
    config: dict[str, Any] = Field(default={})
    results: Results = Results()
    throughput: Throughput = Throughput()
    gate: Recalls = Recalls()
    memory: Bytes = Bytes()
    identity: Identity | None = None
    models: Annotated[list[Model], Field(fail_fast=True)] = Field(default=[])

    @property
    def rows(self) -> list[Stage]:
        """The samples of the system that the report is about."""
        return self.throughput.k3_cross_model.stage_timings

    @property
    def oracle_rows(self) -> list[Stage]:
        """The samples of the oracle."""
        return self.throughput.oracle_native_ar.stage_timings

    @property
    def restored(self) -> list[bool | None]:
        """What each sample says of its path."""
        return [row.restoration_active for row in self.rows]

    @property
    def headline(self) -> float | None:
        """A quotient that is claimed, of either kind."""
        pure = self.throughput.decode_only.speedup if self.throughput.decode_only else None
        whole = self.throughput.cross_model_speedup_vs_oracle_ar
        return whole if whole is not None else pure

    @property
    def arms(self) -> list[tuple[str, list[Stage], Samples]]:
        """Both arms: name, times, output."""
        return [
            ("k3_cross_model", self.rows, self.results.k3_cross_model),
            ("oracle", self.oracle_rows, self.results.oracle),
        ]
