# ruff: noqa: E501 - a table: one case a line reads best
"""Falsehoods about restored sliding layers: recall shows nothing there, so that predictions and their controls must."""

from __future__ import annotations

from tests.bridge.evidence.falsehoods import (
    RES,
    SLI,
    Case,
    Edit,
    Report,
    all_of,
    each,
    prompt_ids,
    put,
    rows,
    without_arm,
)
from tests.bridge.evidence.red_rest import own_model
from tests.bridge.evidence.reports import copy

CODE, LEARNED, SHUFFLED = "restored e8v@4.25", "restored learned", "shuffled"
RATIO, DIVERGENCE = "prompt_kl_ratio", "prompt_kl"


def moving(arm: str, times: float) -> Edit:
    """Let an arm move predictions so many times as far."""
    return each(arm, lambda row: row["prediction"].update(sum_kl=row["prediction"]["sum_kl"] * times))


def moving_as(arm: str, other: str) -> Edit:
    """Give an arm the predictions of another."""

    def edit(made: Report) -> None:
        for row in rows(made, arm):
            (source,) = rows(made, other, row["prompt"])
            row["prediction"] = copy(source["prediction"])

    return edit


def still(row: Report) -> None:
    row["prediction"].update(sum_kl=0.0, same_top=row["prediction"]["n_positions"])


def claiming(name: str, arm: str, against: str | None = None, **fields: object) -> Edit:
    """Claim something more; its figure is computed from the rows."""

    def edit(made: Report) -> None:
        told = {"name": name, "arm": arm, "value": 0.0, "interval": [0.0, 0.0], "where": {}, **fields}
        told["definition"] = "as docs/evidence.md defines it"
        made["claims"].append(told | ({"against": against} if against else {}))

    return edit


def unclaimed(name: str, arm: str | None = None, against: str | None = None) -> Edit:
    """Leave claims out."""

    def edit(made: Report) -> None:
        made["claims"] = [
            claim
            for claim in made["claims"]
            if claim["name"] != name
            or arm not in (None, claim["arm"])
            or against not in (None, claim["against"])
        ]

    return edit


def of_one_prompt(made: Report) -> None:
    """Claim the ratios of the learned restorer over the prompt on which it is best alone."""
    for claim in made["claims"]:
        if (claim["name"], claim["arm"]) == (RATIO, LEARNED):
            claim["where"] = {"prompt": prompt_ids(made)[0]}


def without_predictions(made: Report) -> None:
    for row in made["rows"]:
        row.pop("prediction", None)
    for name in (RATIO, DIVERGENCE):
        unclaimed(name)(made)


def called(layers: str) -> Edit:
    """Say that other layers evict, on a model that the gate does not know."""

    def edit(made: Report) -> None:
        own_model(made)
        made["config"]["layers"] = layers
        for arm in made["arms"]:
            if "sink" in arm["options"]:
                arm["options"]["layers"] = {"full": "full attention"}.get(layers, layers)

    return edit


def nearer_claim(by: float) -> Edit:
    """Claim ratios that the rows do not have."""
    return put("nudge", to=(by, (RATIO,)))


HELPS_NOT, AS_NOISE = moving(LEARNED, 9.0), moving(SHUFFLED, 0.1)

# Each falsehood with the code for which it is caught.
CAUGHT: dict[str, tuple[str, Case]] = {
    "help claimed of a restorer that does not help": ("CLAIM_NOT_FROM_ROWS", Case(SLI, all_of(HELPS_NOT, nearer_claim(0.5)))),
    "a control that is nearer, left unclaimed": ("CHERRY_PICKED", Case(SLI, all_of(AS_NOISE, unclaimed(RATIO, against=SHUFFLED)))),
    "eviction that is nearer, left unclaimed": ("CHERRY_PICKED", Case(SLI, all_of(HELPS_NOT, unclaimed(RATIO, LEARNED, "evicted")))),
    "no ratio of a restorer that does not help": ("CHERRY_PICKED", Case(SLI, all_of(HELPS_NOT, unclaimed(RATIO, LEARNED)))),
    "no ratio at all": ("CHERRY_PICKED", Case(SLI, unclaimed(RATIO))),
    "ratios of the best prompt alone": ("CHERRY_PICKED", Case(SLI, of_one_prompt)),
    "noise that moves nothing": ("POISON_SURVIVES", Case(SLI, moving("poison", 1e-4))),
    "another order of the tokens that moves nothing": ("POISON_SURVIVES", Case(SLI, moving(SHUFFLED, 1e-4))),
    "eviction that moves nothing": ("EVICTED_SURVIVES", Case(SLI, moving("evicted", 1e-4))),
    "exact values that move predictions as far as eviction": ("EVICTED_SURVIVES", Case(SLI, moving("identity", 2000.0))),
    "recall claimed of restored sliding layers": ("EVICTED_SURVIVES", Case(SLI, all_of(*(claiming("recall", arm) for arm in (CODE, "restored e8v@2.25", LEARNED))))),
    "no loss of recall claimed of restored sliding layers": ("POISON_SURVIVES", Case(SLI, claiming("recall_delta", LEARNED, "raw"))),
    "no arm that evicts": ("EVICTED_MISSING", Case(SLI, without_arm("evicted"))),
    "no noise": ("POISON_MISSING", Case(SLI, all_of(without_arm("poison"), without_arm(SHUFFLED)))),
    "no exact values": ("IDENTITY_MISSING", Case(SLI, without_arm("identity"))),
    "no predictions": ("POISON_MISSING", Case(SLI, without_predictions)),
    "the learned restorer predicts as a code does": ("QUALITY_IMPOSSIBLE", Case(SLI, moving_as(LEARNED, CODE))),
    "the learned restorer predicts as the whole cache does": ("QUALITY_IMPOSSIBLE", Case(SLI, each(LEARNED, still))),
    "noise that predicts as eviction does": ("QUALITY_IMPOSSIBLE", Case(SLI, moving_as("poison", "evicted"))),
    "full-attention layers called sliding": ("BYTES_IMPOSSIBLE", Case(RES, called("sliding"))),
    "sliding layers called full-attention": ("BYTES_IMPOSSIBLE", Case(SLI, called("full"))),
    "a ratio to exact values": ("MEANING_UNKNOWN", Case(SLI, claiming(RATIO, LEARNED, "identity"))),
    "a ratio of one control to another": ("MEANING_UNKNOWN", Case(SLI, claiming(RATIO, SHUFFLED, "poison"))),
    "a divergence from a control": ("MEANING_UNKNOWN", Case(SLI, claiming(DIVERGENCE, LEARNED, "evicted"))),
    "a ratio without its prompts": ("INTERVAL_MISSING", Case(SLI, lambda r: [c.pop("interval") for c in r["claims"] if c["name"] == RATIO])),
}  # fmt: skip
SLIDING: dict[str, Case] = {
    **{name: case for name, (_, case) in CAUGHT.items()},
    "a restorer that is a tenth nearer": Case(SLI, moving(LEARNED, 0.9)),
    "eviction that moves predictions twice as far": Case(SLI, moving("evicted", 2.0)),
}
BEYOND: dict[str, str] = {
    "a restorer that is a tenth nearer": "only the model knows its predictions; the digests in the log bind the rows",
    "eviction that moves predictions twice as far": "only the model knows its predictions; the digests in the log bind the rows",
}
TWINS: dict[str, Case] = {
    "a restorer that does not help, and says so": Case(SLI, HELPS_NOT),
    "a restorer that is worse than noise, and says so": Case(SLI, moving(LEARNED, 30.0)),
    "a restorer to which the order of the tokens is nothing, and says so": Case(SLI, AS_NOISE),
    "restored sliding layers of a model of our own": Case(SLI, own_model),
    "exact values that come back to the last bit": Case(SLI, each("identity", still)),
}
