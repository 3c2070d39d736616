"""Checks of clusters: all ranks computed the same, one host decodes the same tokens, and nothing was left out."""

import itertools
from collections import Counter
from collections.abc import Iterator

from bridge.gate.checks.outputs import no_tie
from bridge.gate.index import ReportIndex, check
from bridge.reports.cluster import RankRow
from bridge.reports.digests import tokens_digest
from bridge.reports.kinds import ALL_REDUCE, DISTRIBUTED
from bridge.reports.repetition import first_difference


@check("RANKS_DIFFER", ALL_REDUCE)
def sums_are_right(index: ReportIndex) -> Iterator[str]:
    """Every rank received the sum of all ranks' numbers."""
    ranks = index.report.config.ranks
    total = ranks * (ranks + 1) / 2
    for i, row in enumerate(index.rows):
        lists = (row.rank_s, row.least, row.most)
        if any(len(values) != ranks for values in lists):
            yield f"row {i} is not about {ranks} ranks"
        elif wrong := [
            rank for rank, ends in enumerate(zip(row.least, row.most, strict=True)) if ends != (total, total)
        ]:
            yield f"row {i}: rank {wrong[0]} received {row.least[wrong[0]]:g} to {row.most[wrong[0]]:g}, not {total:g}"


@check("RANKS_DIFFER", DISTRIBUTED)
def ranks_decode_the_same_tokens(index: ReportIndex) -> Iterator[str]:
    """Every rank's digest is that of rank 0's tokens."""
    leading = {(row.prompt, row.repeat): row for row in index.rows if row.rank == 0}
    for row in index.rows:
        name, first = _named(row), leading.get((row.prompt, row.repeat))
        if row.tokens is not None and f"sha256:{tokens_digest(row.tokens)}" != row.digest:
            yield f"{name}: the digest is not that of the tokens"
        elif row.rank is not None and first is not None and row.digest != first.digest:
            yield f"{name}: the tokens are not those of rank 0"


@check("OUTPUT_DIVERGES", DISTRIBUTED)
def one_host_decodes_the_same_tokens(index: ReportIndex) -> Iterator[str]:
    """The tokens of the ranks equal one host's, or part from them at a near tie."""
    alone = {row.prompt: row for row in index.rows if row.rank is None}
    for row in index.rows:
        host = alone.get(row.prompt)
        if row.rank == 0 and host is not None and (fault := _unlike(row, host)):
            yield f"{_named(row)}: {fault}"


def _unlike(row: RankRow, host: RankRow) -> str | None:
    """Return how tokens are not the host's, and why a recorded divergence does not explain it."""
    ours, theirs, parting = row.tokens or [], host.tokens or [], row.divergence
    if ours == theirs:
        return None
    if parting is None:
        return "the tokens differ from one host's"
    at = first_difference(ours, theirs)
    if (parting.ours, parting.theirs) != (ours, theirs):
        return "the recorded tokens are not those of the rows"
    if at is None or parting.index != at or at >= min(len(ours), len(theirs)):
        return f"the tokens do not part at token {parting.index}"
    return no_tie(parting)


@check("NOT_COVERED", ALL_REDUCE)
def every_size_was_summed(index: ReportIndex) -> Iterator[str]:
    """Each configured size was summed in each repeat."""
    config = index.report.config
    rows = {(row.bytes, row.repeat) for row in index.rows}
    for size, repeat in itertools.product(config.sizes, range(config.repeats)):
        if (size, repeat) not in rows:
            yield f"{size} bytes have no repeat {repeat}"


@check("NOT_COVERED", DISTRIBUTED)
def every_rank_decoded(index: ReportIndex) -> Iterator[str]:
    """Each rank decoded each prompt in each repeat, and one host decoded it once."""
    config = index.report.config
    rows = {(row.prompt, row.repeat, row.rank) for row in index.rows}
    for prompt in config.prompts:
        wanted = [(prompt, 0, None), *itertools.product([prompt], range(config.repeats), range(config.ranks))]
        lacking = next((each for each in wanted if each not in rows), None)
        if lacking:
            yield f"{prompt} was not decoded {_place(lacking[2])} in repeat {lacking[1]}"
    if config.prompts and any(row.rank in (None, 0) and row.tokens is None for row in index.rows):
        yield "one host or rank 0 lists no tokens"


@check("ROW_REPEATED", ALL_REDUCE, DISTRIBUTED)
def ranks_report_once(index: ReportIndex) -> Iterator[str]:
    """No measurement of a cluster appears twice."""
    names = Counter(
        _named(row) if isinstance(row, RankRow) else f"{row.bytes} bytes, repeat {row.repeat}"
        for row in index.rows
    )
    for name, times in names.items():
        if times > 1:
            yield f"{name} appears {times} times"


@check("ROW_CONTRADICTS", DISTRIBUTED)
def answers_are_possible(index: ReportIndex) -> Iterator[str]:
    """An answer has as many tokens as it lists, at most the configured number."""
    most = index.report.config.max_tokens
    for row in index.rows:
        if row.tokens is not None and len(row.tokens) != row.n_tokens:
            yield f"{_named(row)}: n_tokens is {row.n_tokens}, and {len(row.tokens)} are listed"
        if row.n_tokens > most:
            yield f"{_named(row)}: {row.n_tokens} tokens; max_tokens is {most}"


def _place(rank: int | None) -> str:
    return "on one host" if rank is None else f"on rank {rank}"


def _named(row: RankRow) -> str:
    return f"{row.prompt} {_place(row.rank)}, repeat {row.repeat}"
