"""The law of vectors that are only stored in half precision: their error is that of rounding."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.evidence.laws.law import CODEC, law
from bridge.evidence.laws.quality import SEEDED
from bridge.evidence.report_index import ReportIndex

# Measured on drawn vectors: 2.77e-6 to 3.06e-6 on 64 of them, 2.81e-6 to 2.85e-6 on thousands.
BFLOAT16, ROOM = 2.85e-6, 1.5


@law(
    "QUALITY_IMPOSSIBLE", CODEC, "rows.rel_mse rows.codec rows.distribution",
    f"drawn vectors that are stored in bfloat16 err by {BFLOAT16:g}, within a factor of {ROOM:g}",
)  # fmt: skip
def raw_vectors_are_rounded(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if (
            row.codec == "raw"
            and row.distribution in SEEDED
            and not BFLOAT16 / ROOM <= row.rel_mse <= BFLOAT16 * ROOM
        ):
            yield f"row {i}: raw errs by {row.rel_mse:.3g} on {row.distribution} vectors"
