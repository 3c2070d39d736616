"""Fields of which lies pass, with the reason: what tests/bridge/evidence/mutations.py may find."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY = "any"
BOUNDED = "small ones"
SWAPS = "swaps"


@dataclass(frozen=True)
class Unchecked:
    """Fields by the pattern of their places, which lies about them pass, and why.

    Attributes:
        pattern: of places such as `rows[].decode_s`.
        shown: the fields as docs/evidence.md names them.
        lies: `any`; `small ones`, within bounds that hold; or `swaps` with another item's.
        reason: why no law can tell.
    """

    pattern: str
    shown: tuple[str, ...]
    lies: str
    reason: str


_TOKENIZER = (
    "only the model's tokenizer knows which text tokens are; the digests in the runner's log bind both"
)
_CLOCK = (
    "a clock within its bounds cannot be told from another; the digests in the runner's log bind every row"
)

UNCHECKED = (
    Unchecked(
        r"identity(\..+)?", ("identity",), ANY,
        "what a machine says of itself, and no claim is made of: the runner's answer names host and versions, and its "
        "gate holds memory and mlx against them",
    ),
    Unchecked(
        r"config\..+", ("config",), ANY,
        "an option that decides no figure; those that name what was measured are checked, and the answer holds the "
        "job's own argv",
    ),
    Unchecked(
        r"models(\[\].*)?", ("models",), ANY,
        "of a model that does not come with the engine nobody here knows name or digests; those of the bundled "
        "ones are checked",
    ),
    Unchecked(r"(arms|prompts|rows)", ("arms", "prompts", "rows"), "another order", "no figure depends on that order"),
    Unchecked(
        r"arms\[\](\.(name|loop|role|oracle|options|options\..+|cache|patches))?",
        ("arms[].loop", "arms[].oracle", "arms[].options"), SWAPS,
        "what an arm is told that no claim is about; baselines, oracles of candidates and drafters are checked",
    ),
    Unchecked(
        r"workloads\..+\.(source|chat_template|task|shared_prefix|shared_suffix)", ("workloads",), ANY,
        "where prompts are from is said by nothing else; those that are called bundled are checked by their digests",
    ),
    Unchecked(r"prompts\[\]\.(n_tokens|length|depth|expected)", ("prompts[].n_tokens",), BOUNDED, _TOKENIZER),
    Unchecked(r"prompts\[\]\.(id|workload)", ("prompts[].id",), SWAPS, "a name stands for nothing but itself"),
    Unchecked(r"rows\[\]\.(text|tokens)", ("rows[].text", "rows[].tokens"), "the same in every row", _TOKENIZER),
    Unchecked(
        r"rows\[\]\.repeat", ("rows[].repeat",), "one more in every row", "repeats are counted from 0 or from 1"
    ),
    Unchecked(
        r"(seconds|rows\[\]\.(prefill_s|decode_s|e2e_s|started_s|seconds))",
        ("seconds", "rows[].prefill_s", "rows[].decode_s", "rows[].e2e_s", "rows[].started_s", "rows[].seconds"),
        "small ones; any where no claim is of time", _CLOCK,
    ),
    Unchecked(
        r"rows\[\]\.(counters|counters\..+|sequence|warmup|profile)", ("rows[].counters",), ANY,
        "counted beside the figures; rounds and injected positions are checked where a claim depends on them",
    ),
    Unchecked(
        r"rows\[\]\.(memory|memory\..+)", ("rows[].memory",), "where no claim is of bytes",
        "bytes of a row that no claim is about, or the axes of an array whose product stays the same",
    ),
    Unchecked(
        r"rows\[\]\.(rel_mse|rel_mse_stderr|rotated|distribution|bits|group|dim)|rows\[\]",
        ("rows[].rel_mse", "rows[].rel_mse_stderr", "rows[].rotated"), BOUNDED,
        "errors between a code's floor and its ceiling differ with the vectors; `kakeya-engine codec rd` draws the "
        "same ones from the seed on every machine",
    ),
    Unchecked(
        r"rows\[\]\.(sum_squared_error|sum_squares|sum_kl|same_top|sum_nll)",
        ("rows[].sum_squared_error", "rows[].sum_kl", "rows[].same_top", "rows[].sum_nll"), BOUNDED,
        "they bound one another, and a lie that keeps to all bounds is small; the digests in the log bind them",
    ),
    Unchecked(
        r"rows\[\]\.(reference|candidate|block|max_logit_error)", ("rows[].reference", "rows[].candidate"),
        "where both say the same", "what two drafters drafted alike is known to them alone; the log's digests bind it",
    ),
    Unchecked(
        r"(throughput|results|memory|gate)(\..+)?", ("schema 2",), ANY,
        "reports of an older harness are held to what their fields allow, and none is bound to a run",
    ),
)  # fmt: skip


def reason_for(kind: str, place: str) -> str | None:
    """Return why lies about a place may pass; None where they may not."""
    found = next((one for one in UNCHECKED if re.fullmatch(one.pattern, place)), None)
    if found is None or (kind.startswith("kakeya.") and "schema 2" in found.shown):
        return None
    return found.reason
