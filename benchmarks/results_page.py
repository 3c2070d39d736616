"""The page of results: what the gate accepted, its losses first, and the names of what it did not accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.results_claims import about, claims, is_of_all, losses, value, where
from benchmarks.results_kept import Kept, Row
from benchmarks.results_scores import scores
from bridge.report import codec, decode
from bridge.report.text import cell, number

HEAD = """\
# Results

Written by `make results` from the reports in docs/results that the [evidence gate](evidence.md) accepts: it takes
every claim again from its rows. `kakeya gate docs/results` does so again. Losses stand first. What was measured and not
accepted is named [at the end](#not-accepted), without its figures. Claims have the names and definitions of
[Evidence](evidence.md#claims). In brackets stand the least and the greatest prompt of a rate, and the exact 95 %
interval of a share. Rates belong to the machine and to what else it did; errors, bits, recall and agreement hardly
depend on it. OpenBLAS had one thread (`OPENBLAS_NUM_THREADS=1`), with which models this small decode fastest without
drafts.
"""
SHOWS = {
    "kakeya.codec-rd": "Relative squared error of codes for vectors, at all the bits that they store.",
    "kakeya.spec-bench": "Speculative decoding beside `native`, mlx-lm's own generation. `dflash/auto` drafts with the "
    "model, `lookup/auto` with the text so far, `adaptive/auto` with what pays; `incremental` is that loop without "
    "drafts.",
    "kakeya.acceptance": "How many drafts are accepted, by set of prompts, and what that is worth in speed.",
    "kakeya.verify-l": "One forward pass over so many tokens: what drafts have to earn.",
    "kakeya.parity": "On how many drafted tokens two implementations, or two types, agree.",
    "kakeya.kv-quant": "Caches at the bits that they store, and what they do to predictions.",
    "kakeya.recall": "Codes found in padding with each cache. `identity` must find what `raw` finds, `poison` nothing.",
    "kakeya.restored-prefill": "Codes found after the cache had let them go. `identity` has them back as they were, "
    "`poison` as noise, `evicted` not at all.",
}
NOTHING = "Nothing that was measured was accepted.\n"
NO_LOSS = "None of what is claimed below is one.\n"
WHOLE = "Every report in docs/results was accepted.\n"


def page(kept: Sequence[Kept], earlier: str = "") -> str:
    """Return docs/results.md.

    Args:
        kept: the runs, accepted or not.
        earlier: a section on figures whose reports were not kept; it stands before what was not accepted.
    """
    accepted = [run for run in kept if run.accepted]
    parts = [HEAD]
    if accepted:
        lost = [line for run in accepted for line in losses(run)]
        parts += ["## Machine\n", machines(accepted)]
        parts += ["## Losses\n", table(("report", "claim", "of", "value", "so"), lost) if lost else NO_LOSS]
        parts += [*(section(run) for run in accepted), scores()]
    else:
        parts.append(NOTHING)
    parts += [earlier] if earlier else []
    return "\n".join([*parts, "## Not accepted\n", not_accepted([run for run in kept if not run.accepted])])


def machines(kept: Sequence[Kept]) -> str:
    """Return on what, by which code and with which libraries was measured: one line where all is the same."""
    found: dict[str, list[str]] = {}
    for run in kept:
        found.setdefault(machine(run.measured["identity"]), []).append(run.name)
    names = ["" if len(found) == 1 else f": {', '.join(of)}" for of in found.values()]
    return "".join(f"- {about}{of}\n" for about, of in zip(found, names, strict=True))


def machine(identity: Row) -> str:
    """Return what is the same for all runs on one machine by one code."""
    code, memory = identity["code"], identity.get("memory_bytes")
    commit = f"commit `{code['commit'][:12]}`" if code.get("commit") else f"sources `{code['digest'][:19]}`"
    facts = (
        identity["chip"],
        f"{identity['cores']} cores" if identity.get("cores") else "",
        f"{memory / 2**30:.0f} GiB" if memory else "",
        identity["os"],
        f"MLX on the {identity['device']}, BLAS {identity['blas'].get('name')}",
        *(f"{name} {version}" for name, version in identity["versions"].items() if version),
        commit + (" with changes" if code.get("dirty") else ""),
    )
    return "; ".join(filter(None, facts))


def section(run: Kept) -> str:
    """Return what one accepted report shows."""
    made, spread, load = run.measured, spread_of(run.measured), run.measured["identity"].get("load")
    facts = [f"{made['created_at']}, {made['seconds']:.0f} s"]
    facts += [f"load {load[0]:.1f}"] if load else []
    facts += [f"repeats of the same lie up to {spread:.2f} times apart"] if spread else []
    facts += (
        [f"measured {len(run.earlier) + 1} times, before: {'; '.join(run.earlier)}"] if run.earlier else []
    )
    head = f"## {run.name}\n\n{SHOWS.get(made['kind'], '')}\n\n```sh\n{run.command}\n```\n\n{'; '.join(facts)}.\n"
    return "\n".join([head, *tables(made)])


def spread_of(report: Row) -> float:
    """Return the greatest quotient of two repeats' rates, or of two passes' seconds, of the same; 0 of none."""
    found: dict[tuple[object, ...], list[float]] = {}
    for row in (row for row in report["rows"] if not row.get("warmup")):
        if "seconds" in row:
            found.setdefault((row["length"], row["context"]), []).append(row["seconds"])
        elif rate := decode.rate(row):
            found.setdefault((row["arm"], row["prompt"]), []).append(rate)
    return max((max(values) / min(values) for values in found.values() if len(values) > 1), default=0.0)


def tables(report: Row) -> Iterator[str]:
    """Yield the claims as tables: of each arm, of one over another, and of some rows alone; of codecs the rows."""
    if report["kind"] == "kakeya.codec-rd":
        for shown in codec.tables(report):
            yield table(shown.columns, (map(cell, row) for row in shown.rows))
    found = claims(report)
    whole, parts = ([c for c in found if is_of_all(c) is wanted] for wanted in (True, False))
    for compared in (False, True):
        yield from pivot("arm", [c for c in whole if bool(c.get("against")) is compared], about, _name, value)
    if report["kind"] == "kakeya.verify-l":
        yield from pivot("tokens", parts, _length, _on_context, lambda c: number(c["value"]))
    else:
        yield from pivot(
            "arm", parts, about, lambda c: f"{c['name']}, {where(c)}", lambda c: number(c["value"])
        )


def pivot(
    head: str,
    found: Iterable[Row],
    row: Callable[[Row], str],
    column: Callable[[Row], str],
    shown: Callable[[Row], str],
) -> Iterator[str]:
    """Yield a table of claims; none of no claims."""
    lines: dict[str, dict[str, str]] = {}
    for claim in found:
        lines.setdefault(row(claim), {})[column(claim)] = shown(claim)
    names = list(dict.fromkeys(name for line in lines.values() for name in line))
    if lines:
        yield table((head, *names), ((of, *(line.get(n, "") for n in names)) for of, line in lines.items()))


def table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def not_accepted(kept: Sequence[Kept]) -> str:
    """Return each run whose figures are no results, with its verdict and the reasons."""
    lines = []
    for run in kept:
        lines.append(f"- **{run.name}** (`{run.command}`): {run.said}\n")
        lines += [f"  - {fault.code}: {fault.message}. Fix: {fault.mend}.\n" for fault in run.reasons]
    return "".join(lines) or WHOLE


def _name(claim: Row) -> str:
    return str(claim["name"])


def _length(claim: Row) -> str:
    return str(claim["where"]["length"])


def _on_context(claim: Row) -> str:
    return f"{claim['name']}, {claim['where']['context']} cached"
