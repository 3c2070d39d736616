"""Finds an earlier answer to the same question: the same preset, parameters and trees, from a runner that still serves.

Only an answer that a pinned key signed counts, with a verdict that accepts it if the preset has a gate.
"""

from collections.abc import Callable, Collection
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

# At most this many of the preset's newest answers are examined.
_LOOKED_AT = 20


@dataclass(frozen=True)
class Reused:
    """An earlier answer: its branch, its request commit, its end in Unix seconds, and its conclusion."""

    branch: str
    request: str
    ended_at: float
    text: str


def find_answer(
    git: Git,
    remote: Remote,
    draft: Draft,
    patterns: tuple[str, ...],
    serving: Collection[str],
    verify: Callable[[history.RequestBranch], "Report"],
) -> Reused | None:
    """Return the newest usable answer to what ``draft`` asks; None if there is none.

    ``serving`` are the instance ids of the runners that serve now; if none is known, an answer of any runner counts.
    """
    trees = [_tree(git, commit) for commit in request_commit.resolve(git, draft)]
    listed = remote.list_branches(*patterns)
    same = [name for name in listed if _preset_of(name) == draft.preset.name]
    newest = sorted(same, key=branch_names.age_sort_key, reverse=True)[:_LOOKED_AT]
    tips = remote.fetch_listed({name: listed[name] for name in newest})
    branches = history.read_branches(git, tips)
    for name in newest:
        branch = branches.get(name)
        if branch is None or branch.current_state is not State.SUCCEEDED:
            continue
        request = _request(git, branch.request)
        # Compare the trees first: verifying an answer takes far longer.
        if request is None or trees != [_tree(git, commit) for commit in (request.workload, request.against)]:
            continue
        report = verify(branch)
        result, conclusion = report.result, report.conclusion
        if result is None or not report.holds or conclusion.trust is not Trust.SIGNED:
            continue
        is_accepted = result.gate.accepted if result.gate else not draft.preset.gated
        is_same = result.preset_digest == draft.preset.digest and result.params == dict(draft.params)
        is_serving = not serving or result.runner.instance in serving
        if is_accepted and is_same and is_serving:
            return Reused(name, branch.request, parse_time(result.finished_at).timestamp(), conclusion.text)
    return None


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
