"""The rows of reports: one model for each kind of measurement."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, WrapValidator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from bridge.reports.parts import (
    HUGE,
    Count,
    Counters,
    Measure,
    Name,
    Number,
    Positive,
    ReportModel,
    Seconds,
    Sha256,
    Text,
    Tokens,
    Word,
)

# A token and its logit. Not strict, because JSON has no tuples; the two values are strict.
Logit = Annotated[tuple[Count, Number], Field(strict=False)]


class CodecRow(ReportModel):
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
    # Whether the bits are counted by a formula, because the codec stores decoded values.
    nominal: bool | None = None
    # Whether vectors are rotated before they are coded.
    rotated: bool | None = None
    # Number of values in a vector.
    dim: Positive | None = None
    # Seconds from the beginning of the run to that of the row; absent in older reports.
    started_s: Measure | None = None


class Buffer(ReportModel):
    """One live array of a cache."""

    shape: Annotated[list[Positive], Field(max_length=8)]
    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32",
    ]  # fmt: skip


class Layer(ReportModel):
    """The cache of one layer after the last token, or of several equal neighbours. ``nbytes`` is the size of each."""

    kind: Name
    nbytes: Count
    arrays: Annotated[list[Buffer], Field(max_length=64)]
    count: Positive = 1


def _shared(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Layer:
    """Validate each distinct layer once: a deep model's rows hold the same layers thousands of times."""
    known: dict[int, Layer] | None = (info.context or {}).get("layers")
    if known is None:
        return validate(value)  # type: ignore[no-any-return]
    if id(value) not in known:
        known[id(value)] = validate(value)
    return known[id(value)]


class Memory(ReportModel):
    """Bytes of the arrays that were alive, not of a formula."""

    counted: Literal["live_arrays"]
    cache_bytes: Count
    layers: Annotated[
        list[Annotated[Layer, WrapValidator(_shared)]], Field(min_length=1, max_length=1000, fail_fast=True)
    ]
    peak_bytes: Count | None = None


class Divergence(ReportModel):
    """Where the tokens leave the oracle's, and how near the oracle was to the other token."""

    index: Count
    # `tie`: rounding explains it; `fault`: it does not; `length`: one answer is the beginning of the other. Absent in
    # older reports.
    kind: Literal["tie", "fault", "length"] | None = None
    # `margin`: how far the lower of the two tokens' logits is below the highest logit. `rounding`: how far rounding
    # alone moved logits, as measured. Absent in older reports.
    margin: Measure | None = None
    rounding: Measure | None = None
    # The oracle's two best tokens there, with their logits.
    best: Annotated[list[Logit], Field(min_length=2, max_length=2)]


class Parting(Divergence):
    """Where an answer of the server leaves the single client's; ``best`` are the two tokens that differ there."""

    # Token ids of the answer, and of the single client's answer.
    ours: Tokens
    theirs: Tokens


class Prediction(ReportModel):
    """Predictions after the first two windows of a prompt, compared with the whole cache's: nats, equal top tokens."""

    n_positions: Positive
    sum_kl: Measure
    same_top: Count


class RoundTimes(ReportModel):
    """Seconds of each round: until the draft and the verification were queued or computed, and waiting for both."""

    draft: Annotated[list[Measure], Field(max_length=1_000_000, fail_fast=True)]
    verify: Annotated[list[Measure], Field(max_length=1_000_000, fail_fast=True)]
    wait: Annotated[list[Measure], Field(max_length=1_000_000, fail_fast=True)]


class Profile(ReportModel):
    """Shares of the decoding time, from a run that measures drafting and verifying separately."""

    draft_share: Number
    verify_share: Number
    overhead_share: Number


class Decode(ReportModel):
    """One arm on one prompt, once. Rows stand in the order in which they ran."""

    arm: Name
    prompt: Name
    repeat: Count
    warmup: bool = False
    prefill_s: Seconds
    # Seconds from the first token to the last, which is the time for `decode_tokens` tokens (without the first one).
    decode_s: Measure
    decode_tokens: Count
    e2e_s: Seconds
    # All output tokens, including the stop token; and their text.
    tokens: Tokens
    text: Annotated[str, Field(max_length=1_000_000)]
    stop: Literal["eos", "stop", "length"]
    # For each round: committed tokens, including the target's own; proposed drafts; accepted drafts.
    commits: Annotated[list[Count], Field(fail_fast=True)] | None = None
    drafted: Annotated[list[Count], Field(fail_fast=True)] | None = None
    accepted: Annotated[list[Count], Field(fail_fast=True)] | None = None
    # Seconds of each round, in comparisons of loops.
    round_s: RoundTimes | None = None
    # Times of drafting and verifying. Only a run that is set aside has them, because measuring them takes
    # time.
    profile: Profile | None = None
    divergence: Divergence | None = None
    # Only reports of restored prompts have predictions; older reports lack them.
    prediction: Prediction | None = None
    memory: Memory | None = None
    # Counters of the run. `injected_positions`: over all layers, the number of cached positions that
    # attention read and whose keys and values came from a codec, a reconstruction or the poison.
    counters: Counters
    # Seconds from the beginning of the run to that of the row; absent in older reports.
    started_s: Measure | None = None


class SolutionRow(ReportModel):
    """One arm's solution of one problem, run against the problem's tests."""

    arm: Name
    prompt: Name
    # The greedy answer: its tokens and its text. A control has no tokens.
    tokens: Tokens
    text: Annotated[str, Field(max_length=1_000_000)]
    stop: Literal["eos", "stop", "length"] | None
    # Whether all tests passed; otherwise the name of the first exception, or why there was none.
    passed: bool
    error: Word | None = None
    # Always 0: each arm solves a problem once.
    repeat: Count = 0
    commits: Annotated[list[Count], Field(fail_fast=True)] | None = None
    drafted: Annotated[list[Count], Field(fail_fast=True)] | None = None
    accepted: Annotated[list[Count], Field(fail_fast=True)] | None = None
    divergence: Divergence | None = None
    counters: Counters
    started_s: Measure | None = None


class VerifyRow(ReportModel):
    """One forward pass over ``length`` tokens on top of ``context`` cached ones."""

    length: Positive
    context: Positive
    # The cache of the context; a report has only one.
    cache: Name
    repeat: Count
    # The number of the pass among all passes.
    sequence: Count | None = None
    warmup: bool = False
    seconds: Seconds
    counters: Counters
    started_s: Measure | None = None


class QuantRow(ReportModel):
    """One cache codec on one prompt, as sums, so that every mean can be computed again."""

    arm: Name
    prompt: Name
    # The arrays of the encoded keys and values with side information, and the number of encoded values.
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
    started_s: Measure | None = None


class ParityRow(ReportModel):
    """One draft of two implementations from the same inputs."""

    prompt: Name
    block: Count
    reference: Tokens
    candidate: Tokens
    # The target's own tokens at the positions of the drafts; absent in older reports.
    target: Tokens | None = None
    max_logit_error: Measure | None = None
    # How far the reference's logit is above the candidate's where their tokens first differ.
    margin: Number | None = None
    started_s: Measure | None = None


class CellRow(ReportModel):
    """One answer of the server in one combination of features."""

    draft: Literal["none", "lookup", "dflash"]
    cache: Name
    # Whether the prefix cache already had blocks of the prompt.
    warm: bool
    # How many clients asked at the same time, each one of the first questions.
    clients: Annotated[int, Field(gt=0, le=64)]
    form: Literal["free", "json_schema"]
    question: Annotated[int, Field(ge=0, lt=64)]
    # Digest of the token ids, as decimal numbers separated by commas.
    tokens: Sha256
    n_tokens: Positive
    text: Annotated[str, Field(max_length=20_000)]
    stop: Literal["stop", "length"]
    # The server's explanation if it did not do what was requested.
    fallback: Text | None
    counters: Counters
    # How the tokens differ from the single client's; absent if they are equal.
    divergence: Parting | None = None
    started_s: Measure | None = None


class CompareRow(ReportModel):
    """One run of the measured step in one arm of a comparison."""

    round: Count
    # The place among the six runs of its round.
    position: Annotated[int, Field(ge=0, le=5)]
    arm: Literal["candidate", "baseline", "again"]
    value: Annotated[float, Field(gt=0, lt=HUGE, allow_inf_nan=False)]
    warmup: bool = False
