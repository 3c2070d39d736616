"""The kinds of report: one model each. bridge/schemas/report-3.json is made of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter

from bridge.evidence.parts import (
    Arm,
    Claim,
    Count,
    Counters,
    Identity,
    Measure,
    Model,
    Name,
    Number,
    Part,
    Positive,
    Prompt,
    Seconds,
    Text,
    Time,
    Tokens,
    Workload,
)  # fmt: skip

# A token and its logit. Not strict, because JSON has no tuples; what is in it is.
Logit = Annotated[tuple[Count, Number], Field(strict=False)]

Rows = Field(min_length=1, max_length=50_000)


class CodecRow(Part):
    """One codec on one array of vectors."""

    codec: Text
    distribution: Text
    n_vectors: Count
    stored_bits_per_value: Measure
    rel_mse: Measure
    rel_mse_stderr: Measure
    limit: Measure
    bits: Count | None = None
    group: Count | None = None
    # Whether vectors are rotated before they are coded.
    rotated: bool | None = None
    # Values in a vector.
    dim: Positive | None = None


class Buffer(Part):
    """One live array of a cache."""

    shape: Annotated[list[Positive], Field(max_length=8)]
    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32",
    ]  # fmt: skip


class Layer(Part):
    """One layer's cache as it stood after the last token."""

    kind: Name
    nbytes: Count
    arrays: Annotated[list[Buffer], Field(max_length=64)]


class Memory(Part):
    """Bytes of the arrays that were alive, not of a formula."""

    counted: Literal["live_arrays"]
    cache_bytes: Count
    layers: Annotated[list[Layer], Field(min_length=1, max_length=1000)]
    peak_bytes: Count | None = None


class Divergence(Part):
    """Where the tokens leave the oracle's, and how near the oracle was to the other token."""

    index: Count
    # The oracle's two best tokens there, with their logits.
    best: Annotated[list[Logit], Field(min_length=2, max_length=2)]


class Decode(Part):
    """One arm on one prompt, once. Rows stand in the order in which they ran."""

    arm: Name
    prompt: Name
    repeat: Count
    warmup: bool = False
    prefill_s: Seconds
    # The time from the first token to the last: of `decode_tokens` tokens, the first one excepted.
    decode_s: Measure
    decode_tokens: Count
    e2e_s: Seconds
    # Every token that was put out, the stop token included; and their text.
    tokens: Tokens
    text: Annotated[str, Field(max_length=1_000_000)]
    stop: Literal["eos", "stop", "length"]
    # Of each round: tokens that it committed, the target's own included; drafts that it proposed and accepted.
    commits: list[Count] | None = None
    drafted: list[Count] | None = None
    accepted: list[Count] | None = None
    divergence: Divergence | None = None
    memory: Memory | None = None
    # What was counted while it ran. `injected_positions`: over all layers, how many cached positions attention read
    # whose keys and values a codec, a reconstruction or the poison had made.
    counters: Counters
    # Seconds from the beginning of the run to that of the row; absent in older reports.
    started_s: Measure | None = None


class VerifyRow(Part):
    """One forward pass over `length` tokens on top of `context` cached ones."""

    length: Positive
    context: Positive
    # What holds the context: the report's one cache.
    cache: Name
    repeat: Count
    warmup: bool = False
    seconds: Seconds
    counters: Counters
    started_s: Measure | None = None


class QuantRow(Part):
    """One cache codec on one prompt: sums, so that every mean can be taken again."""

    arm: Name
    prompt: Name
    # The arrays of the encoded keys and values, side information included, and how many values they stand for.
    memory: Memory
    n_values: Positive
    sum_squared_error: Measure
    sum_squares: Measure
    # Over the scored positions of the prompt: KL divergence from the raw cache in nats, equal top tokens, and -ln p.
    n_positions: Positive
    sum_kl: Measure
    same_top: Count
    sum_nll: Measure
    counters: Counters


class ParityRow(Part):
    """One draft of two implementations from the same inputs."""

    prompt: Name
    block: Count
    reference: Tokens
    candidate: Tokens
    max_logit_error: Measure | None = None


class DecodeConfig(Part):
    """The options that decide what is measured; all others stand beside them."""

    seed: Count
    temperature: Measure
    max_tokens: Positive


class Sweep(Part):
    """The options of a sweep over lengths."""

    seed: Count
    cache: Name
    lengths: Annotated[list[Positive], Field(min_length=1)]


class Seeded(Part):
    """Options with a seed."""

    seed: Count


class Run(Part):
    """The run that a report is of, by the id that a runner gave the job."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Report(Part):
    """What all kinds share. No other field stands beside these: what is measured is in rows, what is said in claims."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[3]
    created_at: Time
    seconds: Measure
    identity: Identity
    # Absent where nobody gave the run an id, and in older reports.
    run: Run | None = None
    claims: Annotated[list[Claim], Field(max_length=200, default_factory=list)]


class WithModels(Report):
    """A report about models."""

    models: Annotated[list[Model], Field(min_length=1, max_length=20)]


class OnPrompts(WithModels):
    """A report of arms over prompts of named workloads."""

    workloads: Annotated[dict[Name, Workload], Field(min_length=1, max_length=50)]
    prompts: Annotated[list[Prompt], Field(min_length=1, max_length=2_000)]
    arms: Annotated[list[Arm], Field(min_length=1, max_length=100)]


class Decoded(OnPrompts):
    """A report of what was decoded: interleaved arms over prompts of named workloads."""

    config: DecodeConfig
    rows: Annotated[list[Decode], Rows]


class CodecRd(Report):
    """Rate and distortion of codecs on vectors."""

    kind: Literal["kakeya.codec-rd"]
    config: Annotated[dict[str, Any], Field(min_length=1)]
    models: Annotated[list[Model], Field(max_length=20, default_factory=list)]
    rows: Annotated[list[CodecRow], Rows]


class SpecBench(Decoded):
    """Speculative decoding beside plain decoding."""

    kind: Literal["kakeya.spec-bench"]


class Acceptance(Decoded):
    """How many drafts are accepted."""

    kind: Literal["kakeya.acceptance"]


class Native(Decoded):
    """Stock decoding alone: a baseline, named as one."""

    kind: Literal["kakeya.native"]


class Recall(Decoded):
    """Needles found, by cache, length and depth."""

    kind: Literal["kakeya.recall"]


class RestoredPrefill(Decoded):
    """Needles found after evicted keys and values were put back."""

    kind: Literal["kakeya.restored-prefill"]


class VerifyL(WithModels):
    """What verifying L tokens costs."""

    kind: Literal["kakeya.verify-l"]
    config: Sweep
    rows: Annotated[list[VerifyRow], Rows]


class KvQuant(OnPrompts):
    """Cache codecs at equal stored bits."""

    kind: Literal["kakeya.kv-quant"]
    config: Seeded
    rows: Annotated[list[QuantRow], Rows]


class Parity(OnPrompts):
    """A drafter beside the reference implementation."""

    kind: Literal["kakeya.parity"]
    config: Seeded
    arms: Annotated[list[Arm], Field(min_length=2, max_length=2)]
    rows: Annotated[list[ParityRow], Rows]


AnyReport = Annotated[
    CodecRd | SpecBench | Acceptance | Native | Recall | RestoredPrefill | VerifyL | KvQuant | Parity,
    Field(discriminator="kind"),
]
MODELS: dict[str, type[Report]] = {
    "kakeya.codec-rd": CodecRd,
    "kakeya.spec-bench": SpecBench,
    "kakeya.acceptance": Acceptance,
    "kakeya.native": Native,
    "kakeya.recall": Recall,
    "kakeya.restored-prefill": RestoredPrefill,
    "kakeya.verify-l": VerifyL,
    "kakeya.kv-quant": KvQuant,
    "kakeya.parity": Parity,
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all kinds."""
    made = TypeAdapter[Any](AnyReport).json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://kakeya-bridge.invalid/schemas/report-3.json",
        "title": "A report of kakeya-engine, schema version 3",
        **made,
    }
