"""The check behind GitHub's job-started hook: refuses every job that this host's policy does not name.

GitHub takes workflows from the pushed commit, so any pushed workflow can select this machine. The check reads only what
GitHub's own runner says about the job, which a workflow cannot change, and nothing from the pushed tree.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bridge.bus import branch_names, history, objects
from bridge.errors import RefusedError
from runner.bus.bus import Bus
from runner.policy import Actions, Policy

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = "refs/heads/"
_MAX_EVENT = 32 << 20
_MAX_WORKFLOW = 1 << 20

VARIABLES = (
    "GITHUB_REPOSITORY",
    "GITHUB_WORKFLOW_REF",
    "GITHUB_EVENT_NAME",
    "GITHUB_REF",
    "GITHUB_SHA",
    "GITHUB_EVENT_PATH",
    "GITHUB_WORKFLOW_SHA",
)


def check_job(policy: Policy, claims: Mapping[str, str | None]) -> str:
    """Check a job, using GitHub's variables, and return its description; RefusedError if it is not allowed."""
    actions = policy.actions
    if actions is None:
        raise _no("not_configured", "the policy has no section `actions`, so no job of GitHub's may run here")
    job = {name: _claimed(claims, name) for name in VARIABLES[:6]}
    if job["GITHUB_REPOSITORY"].lower() != actions.repository.lower():
        raise _no("repository", f"{job['GITHUB_REPOSITORY']!a} is not {actions.repository}")
    if job["GITHUB_EVENT_NAME"] not in actions.events:
        raise _no("event", f"{job['GITHUB_EVENT_NAME']!a} is not one of {', '.join(actions.events)}")
    branch = _branch(job["GITHUB_REF"], actions.branches or policy.bus.patterns)
    _check_workflow(job["GITHUB_WORKFLOW_REF"], actions)
    commit = job["GITHUB_SHA"]
    if not _COMMIT.fullmatch(commit):
        raise _no("commit", f"{commit!a} is not a commit id")
    _check_event(_read_event(Path(job["GITHUB_EVENT_PATH"])), job)
    if actions.workflow_sha256:
        _check_content(policy, branch, commit, claims)
    return f"{job['GITHUB_EVENT_NAME']} of {branch} at {commit[:12]} by {job['GITHUB_WORKFLOW_REF']}"


def _claimed(claims: Mapping[str, str | None], name: str) -> str:
    if not (value := claims.get(name)):
        raise _no("incomplete", f"{name} is not set: this is no job of GitHub's, or of an older runner")
    return value


def _branch(ref: str, patterns: list[str]) -> str:
    branch = ref.removeprefix(_BRANCH)
    is_branch = ref.startswith(_BRANCH) and branch_names.is_safe(branch)
    if not is_branch or not branch_names.matches(branch, patterns):
        raise _no("branch", f"{ref!a} is not a branch under {', '.join(patterns)}")
    return branch


def _check_workflow(ref: str, actions: Actions) -> None:
    """Match ``OWNER/REPO/PATH@REF`` against the patterns. ``*`` matches anything in a pattern's REF, not its PATH."""
    where, _, branch = ref.partition("@")
    patterns = [pattern.partition("@") for pattern in actions.workflows]
    known = [of for path, _, of in patterns if where.lower() == f"{actions.repository}/{path}".lower()]
    if not branch_names.is_safe(branch) or not any(fnmatchcase(branch, of) for of in known):
        raise _no("workflow", f"{ref!a} is not one of {', '.join(actions.workflows)}")


def _read_event(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            event = json.loads(file.read(_MAX_EVENT))
    except (OSError, ValueError, RecursionError) as error:
        raise _no("malformed", f"the event cannot be read: {type(error).__name__}") from error
    if not isinstance(event, dict) or not isinstance(event.get("repository"), dict):
        raise _no("malformed", "the event is not one of GitHub's")
    return event


def _check_event(event: Mapping[str, Any], job: Mapping[str, str]) -> None:
    """Check that the event file agrees with the variables, and that a push is not a deletion."""
    full_name: object = event["repository"].get("full_name")
    expected: dict[str, tuple[object, object]] = {"repository": (full_name, job["GITHUB_REPOSITORY"])}
    if job["GITHUB_EVENT_NAME"] == "push":
        expected |= {
            "ref": (event.get("ref"), job["GITHUB_REF"]),
            "after": (event.get("after"), job["GITHUB_SHA"]),
            "deleted": (event.get("deleted"), False),
        }
    for name, (claimed, wanted) in expected.items():
        if claimed != wanted:
            raise _no("event_differs", f"the event's {name} is {claimed!a}, and not {wanted!a}")


def _check_content(policy: Policy, branch: str, commit: str, claims: Mapping[str, str | None]) -> None:
    """Check that the workflow file at the job's commit has one of the digests in the policy."""
    assert policy.actions  # noqa: S101 - for the type checker: the caller looked
    if claims.get("GITHUB_WORKFLOW_SHA") != commit:
        raise _no("commit", "the workflow is not of the commit that the job is for")
    bus = Bus(policy.bus, policy.state)
    tip = bus.tip_with(branch, commit)
    if tip is None or not history.is_ancestor(bus.git, commit, tip):
        raise _no("commit", f"{commit[:12]} is not on {branch}")
    path = _claimed(claims, "GITHUB_WORKFLOW_REF").partition("@")[0].split("/", 2)[2]
    blob = objects.read_blob(bus.git, commit, path, max_bytes=_MAX_WORKFLOW)
    digest = hashlib.sha256(blob or b"").hexdigest()
    if blob is None or digest not in policy.actions.workflow_sha256:
        message = f"{path} at {commit[:12]} has the digest {digest}, which the policy lacks"
        raise _no("workflow_changed", message)


def _no(code: str, message: str) -> RefusedError:
    fix = "What may run here is decided by `actions` in this host's policy; docs/operations.md describes it."
    return RefusedError(f"this job may not run here: {message}", code=code, fix=fix)
