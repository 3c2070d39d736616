"""The rows of reports about several ranks."""

from typing import Annotated, Literal

from pydantic import Field

from bridge.reports.parts import Count, Measure, Name, Number, Positive, ReportModel, Seconds, Sha256, Tokens
from bridge.reports.rows import Parting

MOST_RANKS = 64
Rank = Annotated[int, Field(ge=0, lt=MOST_RANKS)]


class ReduceRow(ReportModel):
    """One sum over all ranks, each of which adds its number plus one in every place. The lists are by rank."""

    bytes: Positive
    repeat: Count
    # Seconds that the sum took on each rank.
    rank_s: Annotated[list[Seconds], Field(min_length=2, max_length=MOST_RANKS)]
    # The least and the greatest value of the result.
    least: Annotated[list[Number], Field(min_length=2, max_length=MOST_RANKS)]
    most: Annotated[list[Number], Field(min_length=2, max_length=MOST_RANKS)]
    started_s: Measure | None = None


class RankRow(ReportModel):
    """An answer on one rank of a cluster, or on one host without a cluster."""

    # None: the whole model on one host.
    rank: Rank | None
    prompt: Name
    repeat: Count
    # The token ids on one host and on rank 0; each other rank reports the digest of its own.
    tokens: Tokens | None
    digest: Sha256
    n_tokens: Positive
    stop: Literal["stop", "length"]
    prefill_s: Seconds
    # Seconds from the first token to the last.
    decode_s: Measure
    # Highest bytes of MLX's arrays, and of the process's memory, until then.
    peak_bytes: Count
    resident_bytes: Count
    # Where rank 0's tokens leave the host's; absent if they are equal.
    divergence: Parting | None = None
    # Seconds from the beginning of the run to that of the row; ranks, which decode together, have none.
    started_s: Measure | None = None
