"""The part of a report page about clusters: sums over ranks, and decoding beside one host."""

from bridge.common.drawing.plot import Plot
from bridge.common.drawing.text import Cell
from bridge.reports.views.loose import Row, grouped, items, lines, mapping, median, number, numbers, spread
from bridge.reports.views.model import Table


def all_reduce_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return the time of a sum over all ranks by size, and the bytes a second of each link."""
    ranks = number(mapping(report.get("config")).get("ranks")) or 0
    times: dict[float, list[float]] = {}
    for row in items(report.get("rows")):
        size, seconds = number(row.get("bytes")), numbers(row.get("rank_s"))
        if size and seconds:
            times.setdefault(size, []).append(1000 * max(seconds))
    cells: list[tuple[Cell, ...]] = []
    for size, values in sorted(times.items()):
        middle = median(values)
        rate = 2 * (ranks - 1) / ranks * size / middle / 1e6 if ranks and middle else None
        cells.append((size, len(values), min(values), middle, rate))
    if not cells:
        return [], []
    note = "The slowest rank's time. A ring sends 2(N-1)/N times the bytes over each link."
    table = Table(
        "Sums over all ranks", ("bytes", "runs", "least ms", "median ms", "GB/s a link"), tuple(cells), note
    )
    series = lines(
        {"all ranks": [spread(size, ms, f"{size:g} bytes", " ms") for size, ms in sorted(times.items())]}
    )
    return [table], [Plot("Sums over all ranks", "bytes", "milliseconds", series, log=True)]


def distributed_view(report: Row) -> tuple[list[Table], list[Plot]]:
    """Return the speed and the memory of each rank beside one host, and how many answers are the host's."""
    rows = items(report.get("rows"))
    alone = {row.get("prompt"): row.get("digest") for row in rows if row.get("rank") is None}
    cells: list[tuple[Cell, ...]] = []
    for (rank,), some in grouped(rows, "rank").items():
        equal = sum(row.get("digest") == alone.get(row.get("prompt")) for row in some)
        speeds = [
            ((number(row.get("n_tokens")) or 0) - 1) / s for row in some if (s := number(row.get("decode_s")))
        ]
        peak, resident = (
            max((number(row.get(name)) or 0 for row in some), default=0) / 1e6 for name in _BYTES
        )
        place = "one host" if rank == "None" else f"rank {rank}"
        cells.append((place, len(some), equal, median(speeds) if speeds else None, peak, resident))
    columns = ("where", "answers", "equal to one host", "tokens/s", "MB of arrays", "MB of the process")
    return [Table("One model over several ranks", columns, tuple(cells))] if cells else [], []


_BYTES = ("peak_bytes", "resident_bytes")
