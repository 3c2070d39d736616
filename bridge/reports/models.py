"""The typed schema: one model for each kind of report. bridge/schemas/report-3.json is generated from them."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, TypeAdapter

from bridge.reports.backends import BackendRow, Backends
from bridge.reports.cluster import MOST_RANKS, RankRow, ReduceRow
from bridge.reports.own.model import Unit
from bridge.reports.parts import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    Arm,
    Claim,
    CommitId,
    Count,
    Identity,
    Measure,
    Model,
    Name,
    Positive,
    Prompt,
    ReportModel,
    Time,
    Word,
    Workload,
)
from bridge.reports.rows import (
    CellRow,
    CodecRow,
    CompareRow,
    Decode,
    ParityRow,
    QuantRow,
    SolutionRow,
    VerifyRow,
)

Rows = Field(min_length=1, max_length=50_000, fail_fast=True)


class DecodeConfig(ReportModel):
    """The options that decide what is measured. Further options are allowed."""

    seed: Count
    temperature: Measure
    max_tokens: Positive


class Sweep(ReportModel):
    """The options of a sweep over lengths."""

    seed: Count
    cache: Name
    lengths: Annotated[list[Positive], Field(min_length=1, fail_fast=True)]


class Matrix(ReportModel):
    """The options of a conformance matrix. Its cells are all combinations of these."""

    seed: Count
    drafts: Annotated[list[Literal["none", "lookup", "dflash"]], Field(min_length=1, max_length=3)]
    # The requested cache, and the caches that it selects.
    cache: Name
    caches: Annotated[list[Name], Field(min_length=1, max_length=20)]
    warm: Annotated[list[bool], Field(min_length=1, max_length=2)]
    clients: Annotated[list[Annotated[int, Field(gt=0, le=64)]], Field(min_length=1, max_length=8)]
    forms: Annotated[list[Literal["free", "json_schema"]], Field(min_length=1, max_length=2)]
    # Maximum number of tokens of an answer.
    max_tokens: Positive


class Seeded(ReportModel):
    """Options with a seed."""

    seed: Count


class Run(ReportModel):
    """The run in which a report was written, named by the id that the runner gave to it."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Report(ReportModel):
    """The fields of all kinds."""

    schema_version: Literal[3]
    created_at: Time
    seconds: Measure
    # The run in which the report was written; absent without a runner, and in older reports.
    run: Run | None = None
    claims: Annotated[list[Claim], Field(max_length=200, default_factory=list)]


class Measured(Report):
    """A report that the engine measured."""

    identity: Identity


class WithModels(Measured):
    """A report about models."""

    models: Annotated[list[Model], Field(min_length=1, max_length=20)]


class OnPrompts(WithModels):
    """A report of arms over prompts of named workloads."""

    workloads: Annotated[dict[Name, Workload], Field(min_length=1, max_length=50)]
    prompts: Annotated[list[Prompt], Field(min_length=1, max_length=2_000, fail_fast=True)]
    arms: Annotated[list[Arm], Field(min_length=1, max_length=100)]


class Decoded(OnPrompts):
    """A report of decoding: interleaved arms over prompts of named workloads."""

    config: DecodeConfig
    rows: Annotated[list[Decode], Rows]


class CodecRd(Measured):
    """Rate and distortion of codecs on vectors."""

    kind: Literal["kakeya.codec-rd"]
    config: Annotated[dict[str, Any], Field(min_length=1)]
    models: Annotated[list[Model], Field(max_length=20, default_factory=list)]
    rows: Annotated[list[CodecRow], Rows]


class SpecBench(Decoded):
    """Speculative decoding compared with plain decoding."""

    kind: Literal["kakeya.spec-bench"]


class Acceptance(Decoded):
    """How many drafts are accepted."""

    kind: Literal["kakeya.acceptance"]


class Native(Decoded):
    """A report of stock decoding only, whose arms are marked as baselines."""

    kind: Literal["kakeya.native"]


class Recall(Decoded):
    """Needles found, by cache, length and depth."""

    kind: Literal["kakeya.recall"]


class RestoredPrefill(Decoded):
    """Needles found after evicted keys and values were restored."""

    kind: Literal["kakeya.restored-prefill"]


class VerifyL(WithModels):
    """The cost of verifying L tokens."""

    kind: Literal["kakeya.verify-l"]
    config: Sweep
    rows: Annotated[list[VerifyRow], Rows]


class KvQuant(OnPrompts):
    """Cache codecs at equal stored bits."""

    kind: Literal["kakeya.kv-quant"]
    config: Seeded
    rows: Annotated[list[QuantRow], Rows]


class Parity(OnPrompts):
    """A drafter compared with the reference implementation."""

    kind: Literal["kakeya.parity"]
    config: Seeded
    arms: Annotated[list[Arm], Field(min_length=2, max_length=2)]
    rows: Annotated[list[ParityRow], Rows]


class ServeConformance(WithModels):
    """The server's answers in every combination of drafts, caches, cached prompts, clients and grammars."""

    kind: Literal["kakeya.serve-conformance"]
    config: Matrix
    rows: Annotated[list[CellRow], Rows]


class PassAt1(OnPrompts):
    """Solutions to programming problems, run against the problems' tests."""

    kind: Literal["kakeya.pass-at-1"]
    config: DecodeConfig
    rows: Annotated[list[SolutionRow], Rows]


class TorchParity(OnPrompts):
    """The engine's two backends, MLX and torch, on one model."""

    kind: Literal["kakeya.torch-parity"]
    config: DecodeConfig
    backends: Backends
    rows: Annotated[list[BackendRow], Rows]


class RanksConfig(ReportModel):
    """The ranks of a cluster, and how often each measurement is repeated."""

    backend: Literal["ring", "jaccl"]
    ranks: Annotated[int, Field(ge=2, le=MOST_RANKS)]
    repeats: Annotated[int, Field(ge=1, le=1000)]


class ReduceConfig(RanksConfig):
    """The options of a measurement of sums over ranks."""

    sizes: Annotated[list[Positive], Field(min_length=1, max_length=64)]


class DistributedConfig(RanksConfig):
    """The options of decoding on a cluster."""

    seed: Count
    split: Literal["tensor", "pipeline"]
    max_tokens: Positive
    prompts: Annotated[list[Name], Field(min_length=1, max_length=1000)]


class AllReduce(Measured):
    """Sums over all ranks of a cluster, by size."""

    kind: Literal["kakeya.all-reduce"]
    config: ReduceConfig
    rows: Annotated[list[ReduceRow], Rows]


class Distributed(WithModels):
    """Greedy decoding with one model over several ranks, beside one host."""

    kind: Literal["kakeya.distributed"]
    config: DistributedConfig
    rows: Annotated[list[RankRow], Rows]


class Tree(ReportModel):
    """One of the compared trees: the ids of its commit and of the tree itself."""

    commit: CommitId
    tree: CommitId


class CompareConfig(ReportModel):
    """What was measured, by the preset's `compare`, and the trees."""

    preset: Name
    measure: Literal["wall", "processor", "printed"]
    # Where the number stands in the printed JSON.
    pointer: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    unit: Unit
    better: Literal["lower", "higher"]
    rounds: Annotated[int, Field(ge=LEAST_ROUNDS, le=MOST_ROUNDS)]
    candidate: Tree
    baseline: Tree


class Compare(Report):
    """Two trees of the requester's code, timed in turn by the runner; `again` is the baseline once more."""

    kind: Literal["kakeya.compare"]
    # The runner's facts about its machine, and its load averages before and after.
    host: Annotated[dict[Word, object], Field(max_length=200)]
    load: Annotated[list[Measure], Field(max_length=6)]
    config: CompareConfig
    # A warm-up of each arm, and two runs of each in a round: intervals take time with the square of the rounds.
    rows: Annotated[list[CompareRow], Field(min_length=1, max_length=3 + 6 * MOST_ROUNDS, fail_fast=True)]


AnyReport = Annotated[
    CodecRd
    | SpecBench
    | Acceptance
    | Native
    | Recall
    | RestoredPrefill
    | VerifyL
    | KvQuant
    | Parity
    | ServeConformance
    | PassAt1
    | TorchParity
    | AllReduce
    | Distributed
    | Compare,
    Field(discriminator="kind"),
]
# The model of each kind.
MODELS: dict[str, type[Report]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(AnyReport)[0])
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all kinds."""
    document = TypeAdapter[Any](AnyReport).json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://kakeya-bridge.invalid/schemas/report-3.json",
        "title": "A report of kakeya-engine or of a runner, schema version 3",
        **document,
    }
