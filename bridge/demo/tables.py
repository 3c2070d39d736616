"""Tables that the demonstration prints, one per report."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridge.bus.wire import Gate
from bridge.reports.views.kinds import claims_in
from bridge.reports.views.loose import Row, items, text
from bridge.reports.views.model import Claim

# The codes that the table shows, by codec, group and rotation. The report has more codes.
_CODES = {
    ("affine", 128, False): "affine",
    ("affine", 128, True): "affine, rotated",
    ("voronoi", 0, True): "E8 Voronoi",
}

# The columns: each claim with its heading and format. Brackets show the smallest and the largest prompt.
_COLUMNS = {
    "decode_tok_s": ("tokens/s", "{:.0f}"),
    "plain_speedup": ("over plain loops", "{:.2f}x"),
    "decode_speedup": ("over mlx-lm", "{:.2f}x"),
    "accept_length": ("tau", "{:.2f}"),
    "identical_outputs": ("same text", "{:.0%}"),
}
_ARMS = {
    "native": "mlx-lm alone",
    "dflash/auto": "drafter alone",
    "adaptive/auto": "adaptive drafts",
}
# The claims of a speed-up, the strictest first, each with its baseline. Older reports have only the second one.
_SPEEDUPS = {"plain_speedup": "the fastest plain loop", "decode_speedup": "mlx-lm alone"}


def show(report: Row, gate: Gate, out: Console) -> None:
    """Print the table of a report; describe its speed in words if the gate accepts it."""
    if report["kind"] == "kakeya.codec-rd":
        out.print(codec_table(report))
    elif report["kind"] == "kakeya.spec-bench":
        out.print(speed_table(report))
        for line in speed_words(report) if gate.verdict == "ACCEPTED" else ():
            out.print(escape(line))


def codec_table(report: Row) -> Table:
    """Return a table of each code's error on each kind of data, with its stored bits."""
    rows: dict[tuple[float, str, float], dict[str, float]] = {}
    for row in items(report["rows"]):
        name = _CODES.get((row["codec"], row["group"], row["rotated"]))
        if name:
            key = (row["stored_bits_per_value"], name, row["limit"])
            rows.setdefault(key, {})[row["distribution"]] = row["rel_mse"]
    sources = next(iter(rows.values()), {})
    table = _table("relative error at equal stored bits", "stored bits", "code", *sources, "limit 2^-2R")
    for (stored, name, limit), errors in sorted(rows.items()):
        table.add_row(f"{stored:.2f}", name, *(f"{error:.2e}" for error in errors.values()), f"{limit:.2e}")
    return table


def speed_table(report: Row) -> Table:
    """Return a table of the claims about mlx-lm's own generation and about each arm that drafts."""
    claims = claims_in(report)
    names = {claim.name for claim in claims}
    speedup = next((name for name in _SPEEDUPS if name in names), "decode_speedup")
    columns = {c: column for c, column in _COLUMNS.items() if c == speedup or c not in _SPEEDUPS}
    table = _table("generation speed; tau: tokens per round", "", *(head for head, _ in columns.values()))
    for arm in items(report["arms"]):
        name = text(arm["name"])
        if arm["role"] in ("baseline", "candidate"):
            cells = (_cell(claims, name, claim, form) for claim, (_, form) in columns.items())
            table.add_row(_ARMS.get(name, name), *cells)
    return table


def speed_words(report: Row) -> Iterator[str]:
    """Yield sentences: the greatest claimed speed-up, and the same arm's claim over mlx-lm. A loss is called a loss."""
    values = {(c.name, c.arm): c.value for c in claims_in(report) if c.value is not None}
    for name in _SPEEDUPS:
        figures = [(value, arm) for (claim, arm), value in values.items() if claim == name]
        if figures:
            arm = max(figures)[1]
            for claim, over in _SPEEDUPS.items():
                if (times := values.get((claim, arm))) is not None:
                    loss = "" if times > 1 else ": a loss"
                    yield f"{_ARMS.get(arm, arm)}: {times:.2f} times as fast as {over}{loss}"
            return
    yield "no speed is claimed: too few tokens were decoded"


def _cell(claims: tuple[Claim, ...], arm: str, name: str, form: str) -> str:
    claim = next((claim for claim in claims if (claim.arm, claim.name) == (arm, name)), None)
    if claim is None or claim.value is None:
        return ""
    low, high = (form.format(end) for end in claim.interval or (claim.value, claim.value))
    return form.format(claim.value) + (f" ({low} to {high})" if claim.interval else "")


def _table(title: str, *heads: str) -> Table:
    table = Table(title=f"from the report that came back: {title}", title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in ("", "code") else "right")
    return table
