"""The parts of every report, bounded and typed: machine, code, models, prompts, arms and claims."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

# Larger numbers cannot be measurements, and could overflow in computations.
HUGE = 1e15

# How many rounds a comparison of two trees may have. Fewer do not allow an interval of 95 %.
LEAST_ROUNDS, MOST_ROUNDS = 6, 100

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:/+=, -]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
CommitId = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Count = Annotated[int, Field(ge=0, lt=10**15)]
Positive = Annotated[int, Field(gt=0, lt=10**15)]
Measure = Annotated[float, Field(ge=0, lt=HUGE, allow_inf_nan=False)]
Number = Annotated[float, Field(gt=-HUGE, lt=HUGE, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]
# Only the first fault of a long list is reported: each takes far more memory than the faulty value.
Tokens = Annotated[list[Count], Field(max_length=1_000_000, fail_fast=True)]
Word = Annotated[str, Field(max_length=200)]
Counters = Annotated[dict[Word, Count], Field(max_length=100, default_factory=dict)]


class ReportModel(BaseModel):
    """A part of a report: each known field has one type; unknown fields are allowed."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, defer_build=True)


class Code(ReportModel):
    """The code that measured: the package's version, the digest of its sources, and its commit if there is one."""

    version: Text
    digest: Sha256
    commit: CommitId | None = None
    dirty: bool | None = None


class Identity(ReportModel):
    """The machine that measured, with its state and its libraries."""

    host: Text
    os: Text
    chip: Text
    device: Text
    versions: Annotated[dict[Word, Word | None], Field(min_length=1, max_length=200)]
    blas: Annotated[dict[Word, object], Field(min_length=1)]
    code: Code
    # Files of mlx-lm that differ from the installed version.
    modified: Annotated[list[Word], Field(fail_fast=True)]
    cores: Positive | None = None
    memory_bytes: Positive | None = None
    # Load averages of 1, 5 and 15 minutes at the end, and the host's power source.
    load: Annotated[list[Measure], Field(min_length=1, fail_fast=True)]
    power: dict[Word, object] = {}


class Model(ReportModel):
    """A model that took part, with the digests of its files."""

    role: Literal["target", "draft", "reconstruction", "reference"]
    id: Text
    weights: Sha256
    config: Sha256
    tokenizer: Sha256 | None = None
    dtype: Text
    quantization: Word | None = None
    architecture: Word | None = None
    layers: Count | None = None
    parameters: Count | None = None
    # The types of the tensors in the model's files.
    stored_dtypes: Annotated[list[Word], Field(max_length=20, fail_fast=True)] | None = None


class Workload(ReportModel):
    """A group of prompts: its task, and the text that all prompts share."""

    task: Literal["code", "maths", "chat", "prose", "recall"]
    source: Text
    # All text that was added before or after each prompt of the group, except the tokenizer's template.
    shared_prefix: Annotated[str, Field(max_length=20_000)] = ""
    shared_suffix: Annotated[str, Field(max_length=20_000)] = ""
    chat_template: bool


class Prompt(ReportModel):
    """A prompt as it was given to the tokenizer, before a chat template."""

    id: Name
    workload: Name
    sha256: Sha256
    n_tokens: Positive
    # The whole text, or its first and last 1,000 characters where it is longer than 4,000.
    text: Annotated[str, Field(max_length=200_000)] | None = None
    head: Annotated[str, Field(max_length=4000)] | None = None
    tail: Annotated[str, Field(max_length=4000)] | None = None
    # Recall: the text that the answer must contain, and its position in the prompt.
    expected: Annotated[str, Field(max_length=200)] | None = None
    length: Positive | None = None
    depth: Share | None = None


class Arm(ReportModel):
    """One of the things that are compared."""

    name: Name
    role: Literal["baseline", "candidate", "identity", "poison", "evicted", "verify1", "reference"]
    # The decoding loop. Only `mlx_lm.generate_step` is a stock loop.
    loop: Name
    # The cache: `raw`, or a codec with its stored bits, such as `e8v@4.25`.
    cache: Name
    # Library functions that the engine replaced while this arm ran.
    patches: Annotated[list[Word], Field(fail_fast=True)]
    # The arm whose tokens this one must reproduce in greedy decoding.
    oracle: Name | None = None
    options: dict[Word, object] = {}


class Where(ReportModel):
    """The rows that a claim is about; an omitted field restricts nothing."""

    model_config = ConfigDict(extra="forbid")

    workload: Name | None = None
    prompt: Name | None = None
    length: Positive | None = None
    depth: Share | None = None
    context: Positive | None = None


class Claim(ReportModel):
    """One statement: a named statistic of the rows, recomputed by the gate."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    value: Number
    definition: Annotated[str, Field(min_length=10, max_length=1000)]
    arm: Name | None = None
    against: Name | None = None
    where: Where = Where()
    # For counts the exact 95 % interval (Clopper and Pearson); for rates and `prompt_kl` the least and greatest prompt.
    interval: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
