"""Laws of predictions: how far restored prompts move them is counted everywhere, and the controls bound it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.evidence.laws.law import DECODED, RESTORED, law
from bridge.evidence.laws.quality import floor_of_divergence
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode, Prediction

# Exact values that come back through another array may be added in another order, which half precision shows.
ROUNDING = 1e-4


def _predicted(index: ReportIndex) -> Iterator[tuple[int, Decode, Prediction]]:
    for i, row in enumerate(index.rows):
        if row.prediction is not None:
            yield i, row, row.prediction


@law(
    "QUALITY_IMPOSSIBLE", RESTORED, "rows.prediction prompts.n_tokens config.window",
    "predictions are compared at every position behind two windows, in every row or in none",
)  # fmt: skip
def predictions_cover_prompts(index: ReportIndex) -> Iterator[str]:
    window = getattr(index.report.config, "window", None)
    found = [*_predicted(index)]
    if not found or not isinstance(window, int):
        return
    for i, row, made in found:
        tokens = index.prompts[row.prompt].n_tokens
        if made.n_positions != tokens - 2 * window:
            yield f"row {i}: predictions at {made.n_positions} positions; {tokens - 2 * window} are behind two windows"
        if made.same_top > made.n_positions:
            yield f"row {i}: more equal top tokens than positions"
        if made.sum_kl == 0 and made.same_top != made.n_positions:
            yield f"row {i}: top tokens differ, and the divergence is 0"
    short = {name for name, one in index.prompts.items() if one.n_tokens <= 2 * window}
    for i, row in enumerate(index.rows):
        if row.prediction is None and row.prompt not in short:
            yield f"row {i}: {row.arm} has no prediction, and other rows have"


@law(
    "QUALITY_IMPOSSIBLE", RESTORED, "rows.prediction arms.role",
    "the whole cache does not differ from itself, and exact values that come back hardly do",
)  # fmt: skip
def controls_predict_the_same(index: ReportIndex) -> Iterator[str]:
    for i, row, made in _predicted(index):
        rounding = max(ROUNDING, floor_of_divergence(index))
        limit = {"baseline": 0.0, "identity": rounding * made.n_positions}.get(_role(index, row))
        if limit is not None and made.sum_kl > limit:
            yield f"row {i}: the predictions of {row.arm} diverge by {made.sum_kl:.3g} nats from the whole cache's"


@law(
    "QUALITY_IMPOSSIBLE", RESTORED, "rows.prediction rows.repeat",
    "all rows of an arm on a prompt have the same prediction",
)  # fmt: skip
def predictions_repeat(index: ReportIndex) -> Iterator[str]:
    seen: dict[tuple[str, str], Prediction] = {}
    for i, row, made in _predicted(index):
        if seen.setdefault((row.arm, row.prompt), made) != made:
            yield f"row {i}: {row.arm} predicted {row.prompt} otherwise before"


@law(
    "QUALITY_IMPOSSIBLE", RESTORED, "rows.prediction rows.arm",
    "what is restored from codes, learned or replaced moves predictions, and no two arms move them equally",
)  # fmt: skip
def predictions_differ(index: ReportIndex) -> Iterator[str]:
    known: dict[tuple[str, float], str] = {}
    moving = {
        row.prompt for _, row, made in _predicted(index) if made.sum_kl and _role(index, row) == "evicted"
    }
    for i, row, made in _predicted(index):
        if made.sum_kl:
            other = known.setdefault((row.prompt, made.sum_kl), row.arm)
            if other != row.arm:
                yield f"row {i}: {row.arm} moves the predictions of {row.prompt} exactly as far as {other}"
        elif row.prompt in moving and _role(index, row) in ("candidate", "poison"):
            yield f"row {i}: {row.arm} does not move the predictions of {row.prompt}, and evicting does"


def _role(index: ReportIndex, row: Decode) -> str:
    return index.arms[row.arm].role if row.arm in index.arms else ""


@law(
    "STRAY_FIELD", tuple(kind for kind in DECODED if kind not in RESTORED), "rows.prediction",
    "only reports of restored prompts compare predictions",
)  # fmt: skip
def predictions_of_restored_prompts(index: ReportIndex) -> Iterator[str]:
    for i, _, _ in _predicted(index):
        yield f"row {i}: a row has a field 'prediction', which the gate does not know in this kind"
