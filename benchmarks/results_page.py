"""The pages of results: what the gate accepted, its losses first, and the names of what it did not accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.results_claims import about, claims, is_of_all, losses, value
from benchmarks.results_kept import Kept, Row
from benchmarks.results_runs import PAIRS
from benchmarks.results_scores import scores
from bridge.common.drawing.text import Cell, cell
from bridge.reports.counted import counted, decode_rate
from bridge.reports.views import codec
from bridge.reports.views.model import Table
from bridge.show.forms.markdown import markdown_table

HEAD = """\
# Results

`make results` writes this page from the reports in docs/results that the [evidence gate](evidence.md) accepts. A runner
measured each one and signed its run, which lies beside it; `kakeya gate docs/results` checks both again
([how](researcher.md)). Losses come first. Reports that were not accepted are listed [at the end](#not-accepted),
without their figures. [Evidence](evidence.md#claims) defines the claims, the [glossary](glossary.md) other words. In
brackets: a rate's slowest and fastest prompt, or a share's exact 95 % interval. Tables by length or task leave out arms
whose value is the same throughout. Rates depend on the machine and on its load; errors, bits, recall and agreement
hardly do. The weights of smollm2-135m come as a GGUF of 4 bits (Q4_1); they are computed in float32. The bundled pairs
have [a page of their own](results/tiny.md).
"""
BEHIND = """\
# Results of the bundled pairs

The pairs `tiny` and `tiny-hybrid` have about 5 million parameters each and were trained for this project's tests.
[Results](../results.md) has the figures of a real model, and says how to read both pages.
"""
SHOWS = {
    "kakeya.codec-rd": "Relative squared error of vector codecs, and all the bits that they store.",
    "kakeya.spec-bench": "Speculative decoding compared with `native`, mlx-lm's own generation. `dflash/auto` drafts "
    "with the draft model, `lookup/auto` with the text so far, `adaptive/auto` with whichever is fastest; "
    "`incremental` is the same loop without drafts.",
    "kakeya.acceptance": "How many drafts are accepted in each set of prompts, and the resulting speed.",
    "kakeya.verify-l": "The time of one forward pass over several tokens: the cost that accepted drafts must outweigh.",
    "kakeya.parity": "The share of drafted tokens on which two implementations, or two number types, agree.",
    "kakeya.kv-quant": "The error of each cache, the bits that it stores, and its effect on predictions.",
    "kakeya.recall": "Secret codes found in padding with each cache. `identity` must find what `raw` finds, `poison` "
    "must find nothing.",
    "kakeya.pass-at-1": "HumanEval's problems that each cache solves, plainly and with drafts in every round.",
    "kakeya.torch-parity": "The backends over MLX and torch, each in a process of its own with its own BLAS. Tokens "
    "over raw caches and codes of equal vectors must be equal; answers over packed caches may part, since each BLAS "
    "rounds keys and values in its own way before they are coded.",
    "kakeya.restored-prefill": "Secret codes found after the cache evicted them. `identity` restores the exact keys "
    "and values, `poison` restores noise, `shuffled` what the restorer makes of the tokens in another order, `evicted` "
    "nothing. If only sliding layers evict, the other layers find the codes alone; then the report claims, instead of "
    "recall, how far predictions move (`prompt_kl`), and the ratio to each control (`prompt_kl_ratio`).",
}
NOTHING = "No report was accepted.\n"
NO_LOSS = "No claim below is a loss.\n"
WHOLE = "Every report of this page was accepted.\n"


def of_pairs(run: Kept) -> bool:
    """Return whether a run measured a bundled pair, whose figures stand on a page of their own."""
    return run.name.endswith(tuple(f"-{pair}" for pair in PAIRS))


def page(kept: Sequence[Kept], *, behind: bool = False) -> str:
    """Return docs/results.md, or docs/results/tiny.md, which stands behind it.

    Args:
        kept: the runs, accepted or not.
        behind: whether this is the page of the bundled pairs.
    """
    accepted = [run for run in kept if run.accepted]
    parts = [BEHIND if behind else HEAD]
    if accepted:
        lost = [line for run in accepted for line in losses(run)]
        parts += ["## Machine\n", machines(accepted)]
        parts += [
            "## Losses\n",
            table(("report", "claim", "arms", "value", "loss"), lost) or NO_LOSS,
        ]
        kinds = [run.measured["kind"] for run in accepted]
        parts += [
            section(run, new=not behind and run.measured["kind"] not in kinds[:i])
            for i, run in enumerate(accepted)
        ]
        parts += [] if behind else [scores()]
    else:
        parts.append(NOTHING)
    return "\n".join([*parts, "## Not accepted\n", not_accepted([run for run in kept if not run.accepted])])


def machines(kept: Sequence[Kept]) -> str:
    """Return each machine with its library versions, and below it the runs by the code that measured them."""
    runs: dict[str, dict[str, list[str]]] = {}
    for run in kept:
        identity = run.measured["identity"]
        runs.setdefault(machine(identity), {}).setdefault(code(identity["code"]), []).append(run.name)
    return "".join(
        f"- {host}\n" + "".join(f"  - {version}: {', '.join(names)}\n" for version, names in of.items())
        for host, of in runs.items()
    )


def code(fields: Row) -> str:
    """Return the commit that measured, or the digest of its sources."""
    name = (
        f"commit `{fields['commit'][:12]}`"
        if fields.get("commit")
        else f"source digest `{fields['digest'][:19]}`"
    )
    return name + (" with changes" if fields.get("dirty") else "")


def machine(identity: Row) -> str:
    """Return the machine and the library versions of a run."""
    memory = identity.get("memory_bytes")
    facts = (
        identity["chip"],
        f"{identity['cores']} cores" if identity.get("cores") else "",
        f"{memory / 2**30:.0f} GiB" if memory else "",
        identity["os"],
        f"MLX on the {identity['device']}, BLAS {identity['blas'].get('name')}",
        *(f"{name} {version}" for name, version in identity["versions"].items() if version),
    )
    return "; ".join(filter(None, facts))


def section(run: Kept, *, new: bool) -> str:
    """Return what an accepted report shows; what its kind is about only if the kind is new."""
    made, spread, load = run.measured, spread_of(run.measured), run.measured["identity"].get("load")
    facts = [f"Measured at {made['created_at']} in {made['seconds']:.0f} s"]
    facts += [f"load average {load[0]:.1f}"] if load else []
    facts += [f"equal runs differ by a factor of {spread:.2f}"] if spread else []
    facts += [f"earlier verdicts: {', '.join(run.earlier)}"] if run.earlier else []
    shows = [SHOWS[made["kind"]]] if new and made["kind"] in SHOWS else []
    head = "\n\n".join([f"## {run.name}", *shows, f"```sh\n{run.command}\n```", f"{'; '.join(facts)}.\n"])
    return "\n".join([head, *tables(made)])


def spread_of(report: Row) -> float:
    """Return the largest ratio between the rates (or seconds) of equal runs; 0 if nothing ran twice."""
    found: dict[tuple[object, ...], list[float]] = {}
    for row in counted(report["rows"]):
        if "seconds" in row:
            found.setdefault((row["length"], row["context"]), []).append(row["seconds"])
        elif rate := decode_rate(row):
            found.setdefault((row["arm"], row["prompt"]), []).append(rate)
    return max((max(values) / min(values) for values in found.values() if len(values) > 1), default=0.0)


def tables(report: Row) -> Iterator[str]:
    """Yield tables of claims: by arm, by pair of arms, and about some rows only; for codecs, of the rows."""
    if report["kind"] == "kakeya.codec-rd":
        for shown in codec.tables(report):
            yield table(shown.columns, shown.rows)
    found = claims(report)
    whole, parts = ([c for c in found if is_of_all(c) is wanted] for wanted in (True, False))
    for compared in (False, True):
        yield from pivot("arm", [c for c in whole if bool(c.get("against")) is compared], about, _name, value)
    if report["kind"] == "kakeya.verify-l":
        yield from pivot("tokens", parts, _length, _on_context, lambda c: c["value"])
    else:
        for name, claimed in by_name(varying(parts)).items():
            head = f"{name} by {', '.join(key for key in claimed[0]['where'] if key != 'prompt')}"
            yield from pivot(head, claimed, about, restriction, lambda c: c["value"])


def by_name(found: Iterable[Row]) -> dict[str, list[Row]]:
    """Return claims by name."""
    named: dict[str, list[Row]] = {}
    for claim in found:
        named.setdefault(claim["name"], []).append(claim)
    return named


def restriction(claim: Row) -> str:
    """Return the values to which a claim is restricted, such as a length and a depth."""
    return ", ".join(cell(value) for key, value in claim["where"].items() if key != "prompt")


def varying(parts: Sequence[Row]) -> list[Row]:
    """Return the claims of those arms that do not have the same value in every part."""
    values: dict[tuple[str, str], set[object]] = {}
    for claim in parts:
        values.setdefault((about(claim), claim["name"]), set()).add(claim["value"])
    return [claim for claim in parts if len(values[about(claim), claim["name"]]) > 1]


def pivot(
    head: str,
    found: Iterable[Row],
    row: Callable[[Row], str],
    column: Callable[[Row], str],
    shown: Callable[[Row], Cell],
) -> Iterator[str]:
    """Yield a table of claims, or nothing if there are none."""
    lines: dict[str, dict[str, Cell]] = {}
    for claim in found:
        lines.setdefault(row(claim), {})[column(claim)] = shown(claim)
    names = list(dict.fromkeys(name for line in lines.values() for name in line))
    if lines:
        yield table((head, *names), ((of, *map(line.get, names)) for of, line in lines.items()))


def table(columns: Sequence[str], rows: Iterable[Iterable[Cell]]) -> str:
    """Return a whole table in Markdown."""
    text = markdown_table(Table("", tuple(columns), tuple(map(tuple, rows))), own=True)
    return f"{text}\n" if text else ""


def not_accepted(kept: Sequence[Kept]) -> str:
    """Return the runs that were not accepted, with verdict and reasons."""
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
