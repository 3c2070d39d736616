"""Finds an earlier answer to the same question: the same preset, parameters and trees, from a runner that still serves.

Only an answer that a pinned key signed counts, with a verdict that accepts it if the preset has a gate.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.bus import branch_names, history, objects, wire
from bridge.bus.remote import Remote
from bridge.bus.wire import State
from bridge.common import strict_json
from bridge.errors import KakeyaError, ManifestError
from bridge.manifest import Request, parse_manifest, parse_time
from bridge.requests import request_commit
from bridge.requests.request_commit import Draft
from bridge.system.git import Git
from bridge.verify.verdict import Trust

if TYPE_CHECKING:
    from bridge.verify.check import Report

# At most this many of the preset's newest answers are examined for each draft, and for this many drafts.
_LOOKED_AT, _MOST_TIMES = 20, 16


@dataclass(frozen=True)
class Reused:
    """An earlier answer: its branch, its request commit, its end in Unix seconds, and its conclusion."""

    branch: str
    request: str
    ended_at: float
    text: str


def find_answers(
    git: Git,
    remote: Remote,
    drafts: Sequence[Draft],
    patterns: tuple[str, ...],
    serving: Collection[str],
    verify: Callable[[history.RequestBranch], "Report"],
) -> list[Reused | None]:
    """Return the newest usable answer to what each draft asks; None if there is none.

    The drafts differ by their parameters alone. ``serving`` are the instance ids of the runners that serve now; if none
    is known, an answer of any runner counts.
    """
    draft = drafts[0]
    trees = [_tree(git, commit) for commit in request_commit.resolve(git, draft)]
    listed = remote.list_branches(*patterns)
    same = [name for name in listed if _preset_of(name) == draft.preset.name]
    most = _LOOKED_AT * min(len(drafts), _MOST_TIMES)
    newest = sorted(same, key=branch_names.age_sort_key, reverse=True)[:most]
    tips = remote.fetch_listed({name: listed[name] for name in newest})
    branches = history.read_branches(git, tips)
    answers: list[Reused | None] = [None] * len(drafts)
    for name in newest:
        branch = branches.get(name)
        if branch is None or branch.current_state is not State.SUCCEEDED:
            continue
        request = _request(git, branch.request)
        if request is None:
            continue
        missing = [i for i, each in enumerate(drafts) if answers[i] is None and _asks(each, request)]
        # Compare the trees first: verifying an answer takes far longer.
        if not missing or trees != [_tree(git, commit) for commit in (request.workload, request.against)]:
            continue
        report = verify(branch)
        result, conclusion = report.result, report.conclusion
        if result is None or not report.holds or conclusion.trust is not Trust.SIGNED:
            continue
        is_accepted = result.gate.accepted if result.gate else not draft.preset.gated
        is_serving = not serving or result.runner.instance in serving
        if not is_accepted or result.preset_digest != draft.preset.digest or not is_serving:
            continue
        for i in missing:
            if result.params == dict(drafts[i].params):
                ended_at = parse_time(result.finished_at).timestamp()
                answers[i] = Reused(name, branch.request, ended_at, conclusion.text)
    return answers


def _asks(draft: Draft, request: Request) -> bool:
    """Return whether a request has the parameters of a draft, as far as it names them."""
    return all(draft.params.get(name) == value for name, value in request.params.items())


def _preset_of(branch: str) -> str | None:
    parsed = branch_names.parse_branch(branch)
    return parsed.preset if parsed else None


def _request(git: Git, commit: str) -> Request | None:
    try:
        return parse_manifest(
            objects.read_blob(git, commit, wire.REQUEST, max_bytes=strict_json.MAX_BYTES) or b""
        )
    except (KakeyaError, ManifestError):
        return None


def _tree(git: Git, commit: str | None) -> str | None:
    return git.maybe("rev-parse", f"{commit}^{{tree}}") if commit else None
