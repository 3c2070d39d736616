"""What accepted reports claim: of which arms and rows, and which of the claims speak against what they are about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from benchmarks.results_kept import Kept, Row
from bridge.common.drawing.text import Cell, cell, interval, number

# What is slower than it should be, errs more, finds or saves less, or puts out other tokens.
SLOWER = (
    "plain_speedup",
    "worst_plain_speedup",
    "decode_speedup",
    "worst_speedup",
    "e2e_speedup",
    "decode_ratio",
)
WORSE = ("rel_mse_ratio", "kl_ratio")
FARTHER = ("prompt_kl_ratio",)
LESS = ("recall_delta", "memory_saving")
SAME = ("identical_outputs", "agreement")

# A control is there to lose, and a cache that rounds is not said to keep the tokens.
CONTROLS = ("poison", "evicted")
EXACT = ("kakeya.spec-bench", "kakeya.acceptance", "kakeya.parity", "kakeya.pass-at-1", "kakeya.torch-parity")

BITS = 0.05  # codes that store this much more are not at equal bits


def claims(report: Row) -> list[Row]:
    """Return the claims of a report; where one is not restricted, nothing stands."""
    return [
        {**claim, "where": {name: what for name, what in claim.get("where", {}).items() if what is not None}}
        for claim in report.get("claims", [])
    ]


def is_of_all(claim: Row) -> bool:
    """Return whether a claim is about all rows: where there is one prompt, it is named."""
    return not set(claim["where"]) - {"prompt"}


def about(claim: Row) -> str:
    """Return the arms of a claim."""
    arm, against = claim.get("arm"), claim.get("against")
    return f"`{arm}` over `{against}`" if against else f"`{arm}`" if arm else "all"


def where(claim: Row) -> str:
    """Return to what a claim is restricted."""
    named = {name: what for name, what in claim["where"].items() if name != "prompt"}
    return ", ".join(f"{name} {cell(what)}" for name, what in named.items())


def value(claim: Row) -> Cell:
    """Return a claim's value, with its interval if it has one."""
    pair = claim.get("interval")
    return f"{number(claim['value'])} ({interval((pair[0], pair[1]))})" if pair else claim["value"]


def losses(run: Kept) -> Iterator[tuple[Cell, ...]]:
    """Yield each loss of a run: the run, the claim, of what it is, its value, and in what it is one."""
    for claim in claims(run.measured):
        why = loss(run.measured, claim)
        if why:
            of = ", ".join(filter(None, (about(claim), where(claim))))
            yield run.name, claim["name"], of, value(claim), why
    yield from ((run.name, *told) for told in _codec_losses(run.measured))


def loss(report: Row, claim: Row) -> str:
    """Return in what a claim is a loss, or nothing."""
    roles = {arm["name"]: arm["role"] for arm in report.get("arms", [])}
    name, found = claim["name"], claim["value"]
    if roles.get(claim.get("arm", "")) in CONTROLS:
        return ""
    rules: tuple[tuple[Sequence[str], bool, str], ...] = (
        (SLOWER, found < 1, "slower"),
        (WORSE, found > 1, "errs more"),
        (FARTHER, found >= 1, "farther off than a control"),
        (LESS, found < 0, "finds fewer" if name == "recall_delta" else "takes more"),
        (SAME, found < 1 and report["kind"] in EXACT, "not always the same tokens"),
    )
    return next((why for names, holds, why in rules if name in names and holds), "")


def _codec_losses(report: Row) -> Iterator[tuple[Cell, ...]]:
    """Yield the Voronoi codes that err more than an affine one of the same stored bits."""
    rows = report["rows"] if report["kind"] == "kakeya.codec-rd" else []
    for row in (row for row in rows if row["codec"] == "voronoi"):
        rate, source, error = (row[name] for name in ("stored_bits_per_value", "distribution", "rel_mse"))
        same = (r for r in rows if r["codec"] == "affine" and r["distribution"] == source)
        least = min(
            chain((r["rel_mse"] for r in same if abs(r["stored_bits_per_value"] - rate) <= BITS), [error])
        )
        if least < error:
            of = f"E8 Voronoi over affine at {number(rate)} bits, {source}"
            yield "rel_mse", of, f"{number(error)} against {number(least)}", "errs more"
