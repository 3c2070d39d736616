"""Laws of lookups: what a drafter without a model proposed and got right stood in the text before."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.evidence.laws.law import SPEC, law
from bridge.evidence.laws.vocabulary import vocabulary_of
from bridge.evidence.report_index import ReportIndex


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.accepted rows.commits rows.tokens prompts.text arms.options models.tokenizer",
    "the drafts of a lookup that were accepted follow, somewhere before, the token that they follow now",
)  # fmt: skip
def lookups_stood_before(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    arms = {
        arm.name for arm in index.all_arms
        if arm.name.startswith("lookup/") and arm.options.get("lookup") is True and not arm.options.get("adaptive")
    }  # fmt: skip
    done: dict[tuple[str, str, tuple[int, ...], tuple[int, ...]], bool] = {}
    for i, row in enumerate(index.rows) if words is not None else ():
        prompt = index.prompts.get(row.prompt)
        told = index.workloads.get(prompt.workload) if prompt is not None else None
        if (
            row.arm not in arms
            or prompt is None
            or prompt.text is None
            or told is None
            or told.chat_template is not False
        ):
            continue
        if words is None or any(token >= len(words.pieces) for token in row.tokens):
            continue
        key = (row.arm, row.prompt, tuple(row.tokens), tuple(row.accepted or ()))
        if done.setdefault(key, False):
            continue
        done[key] = True
        pieces = [words.pieces[token] for token in row.tokens]
        odd = _first_odd(prompt.text.encode(), pieces, row.commits or [], row.accepted or [])
        if odd is not None:
            yield f"row {i}: round {odd[0]} accepted {odd[1]} drafts of a lookup, which stand nowhere before"


def _first_odd(
    prompt: bytes, pieces: list[bytes], commits: list[int], accepted: list[int]
) -> tuple[int, int] | None:
    """Return the first round, and its drafts, that no lookup can have proposed; None if there is none."""
    at, whole = len(pieces) - sum(commits), prompt + b"".join(pieces)
    starts = [len(prompt)]
    for piece in pieces:
        starts.append(starts[-1] + len(piece))
    for n, (commit, drafts) in enumerate(zip(commits, accepted, strict=False)):
        if at < 0:
            return None  # the last round reaches beyond the stop
        if drafts and at >= 1:
            end = starts[min(at + drafts, len(pieces))]
            run = whole[starts[at - 1] : end]
            if whole.find(run, 0, end - 1) == -1:
                return n, drafts
        at += commit
    return None
