"""An answer as a paragraph of a commit's note: state, verdict with voucher, headline claims, and branch."""

from bridge.common.drawing.text import cell, cut, number, printable
from bridge.show.report_view import report_views
from bridge.show.source import Source, own_kinds, reports_of
from bridge.verify.verdict import conclude

MOST_CLAIMS = 8
# Of each paragraph, and of paragraphs about one commit. If there are more, the oldest are dropped.
_LINE, MOST_RUNS = 160, 50
_BRANCH = "answer: "


def paragraph(source: Source) -> str:
    """Return the paragraph of a note about an answer. Text from the answer stays within its line."""
    result, shown = source.result, conclude(source.result, source.checks)
    params = " ".join(f"{name}={value}" for name, value in result.params.items())
    lines = [
        f"kakeya: {shown.text}",
        _line(f"preset: {result.preset or 'none'} {params}".rstrip()),
        *(
            _line(f"claim: {text}")
            for text in (_claims(source) if (result.gate and result.gate.accepted) else ())
        ),
        _line(f"finished: {result.finished_at} on {result.runner.id}"),
        f"{_BRANCH}{printable(result.branch)}",
    ]
    return "\n".join(lines)


def merged(before: str, new: str) -> str:
    """Return a note's text with a paragraph added. It replaces an earlier paragraph about the same answer.

    Paragraphs of others stay.
    """
    parts = [part for part in before.split("\n\n") if part.strip()]
    about = _answer(new)
    same = [i for i, part in enumerate(parts) if _answer(part) == about]
    if same:
        parts[same[0]] = new
        parts = [part for i, part in enumerate(parts) if i not in same[1:]]
    else:
        parts.append(new)
    ours = [i for i, part in enumerate(parts) if _answer(part)]
    dropped = set(ours[: max(0, len(ours) - MOST_RUNS)])
    return "\n\n".join(part for i, part in enumerate(parts) if i not in dropped)


def _answer(part: str) -> str:
    """Return the line that names the answer in a paragraph that this program wrote; empty for other paragraphs."""
    first, *_, last = ["", *part.strip().split("\n")]
    is_ours = part.startswith("kakeya: ") and last.startswith(_BRANCH)
    return f"{first}{last}" if is_ours else ""


def _claims(source: Source) -> list[str]:
    files = ((path, source.files.get(path)) for path in reports_of(source.result))
    claims = [
        claim for report in report_views(files, own_kinds(source)) for claim in report.claims if claim.stated
    ]
    shown = [
        f"{cell(claim.label)} = {'none' if claim.value is None else number(claim.value)}"
        for claim in claims[:MOST_CLAIMS]
    ]
    return [*shown, f"and {len(claims) - MOST_CLAIMS} more"] if len(claims) > MOST_CLAIMS else shown


def _line(text: str) -> str:
    return cut(printable(text), _LINE)
