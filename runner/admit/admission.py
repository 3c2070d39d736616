"""Decides on a request by its git blobs and this host's presets and policy. Nothing is checked out or run."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bridge.bus import branch_names, objects, wire
from bridge.bus.history import RequestBranch
from bridge.common import limits
from bridge.errors import PresetError
from bridge.manifest import Request
from bridge.presets import Checked, Preset, find_preset
from bridge.presets.params import PathParam, Value
from bridge.system.git import Git
from bridge.system.git_output import ObjectInfo
from bridge.without_bus import NO_FILES, needed_files
from runner.admit import trust
from runner.admit.manifests import Candidate
from runner.host.clock import Clock
from runner.policy import Policy
from runner.refusal import Refusal, Unable
from runner.state.ledger import FENCED, Ledger


@dataclass(frozen=True)
class Admitted:
    """A request that may run, with everything that was decided about it."""

    branch: RequestBranch
    request: Request
    preset: Preset
    params: Mapping[str, Value]
    commands: list[list[str]]
    workload: str | None
    timeout_s: int
    # Why the requester's own code may run; None if the job runs no such code.
    trusted_by: str | None = None
    # The commit whose tree the workload's is compared with.
    against: str | None = None


def admit(
    git: Git, candidate: Candidate, presets: Mapping[str, Preset], policy: Policy, ledger: Ledger
) -> Admitted:
    """Decide on a request.

    Raises:
        Refusal: it is refused; the message gives the requester the reason.
        Unable: it is refused on account of this runner.
        NeedsApproval: the decision has to wait.
    """
    branch, request = candidate.branch, candidate.require_request()
    try:
        _check_time(request, policy)
        _check_replay(branch, request, ledger)
        workload = _check_commit(git, branch, request)
        _check_folders(git, branch.request)
        preset, params, commands = _check_preset(request, presets, policy)
        _check_paths(git, branch.request, preset, params, "request")
        if request.against is not None:
            _check_baseline(git, request.against, workload, preset, params)
        trusted_by = trust.why_trusted(git, branch, preset, policy)
    except Refusal as refusal:
        refusal.request = request
        raise
    timeout = min(preset.timeout_s, policy.limits.timeout_s)
    return Admitted(branch, request, preset, params, commands, workload, timeout, trusted_by, request.against)


def check_alone(candidate: Candidate, presets: Mapping[str, Preset], policy: Policy) -> None:
    """Refuse a request whose job needs what only a branch carries, or a runner that is not this one.

    Raises:
        Refusal: with code ``no_files`` or ``no_label``.
    """
    request = candidate.require_request()
    preset = presets.get(request.preset)
    reason = ""
    if request.workload not in (None, NO_FILES):
        reason = f"names the commit {request.workload[:12]} as its workload"
    elif request.against is not None:
        reason = "compares two commits"
    elif preset and policy.allows(preset.name):
        reason = needed_files(preset)
    if reason:
        raise Refusal("no_files", f"the request {reason}, and a manifest alone brings no files", request)
    wanted = {*(request.labels or ()), *(preset.labels if preset else ())}
    if lacking := sorted(wanted - {*policy.labels}):
        message = (
            f"the runner {policy.id} lacks the labels {', '.join(lacking)}, and no other one sees the request"
        )
        raise Refusal("no_label", message, request)


# Refusals that depend on the time of day: the same request may be accepted later.
OF_AGE = ("expired", "not_yet_valid")


def keeps_unsigned_answer(ledger: Ledger, clock: Clock, max_age_s: float, branch: RequestBranch) -> bool:
    """Return whether an unsigned answer stays: this runner gave it, or its request is too old to run.

    Answers from before ``trust.runners`` was set are unsigned. A second answer to such a request would only hide it.
    """
    if branch.unsigned is None or not branch.unsigned.is_final or branch.current_state.is_final:
        return False
    record = ledger.entry(branch.name)
    if record is not None and record.published is not None:
        return True
    parsed = branch_names.parse_branch(branch.name)
    age_s = time.time() - branch_names.nonce_time(parsed.nonce) if parsed else 0.0
    return age_s > max_age_s and not clock.is_doubtful()


def _check_time(request: Request, policy: Policy) -> None:
    now = datetime.now(UTC).timestamp()
    skew = policy.limits.clock_skew_s
    if request.made_at > now + skew:
        raise Refusal("not_yet_valid", "the request was made in the future by this runner's clock")
    # The requester chose this time, so there is no tolerance for clocks that differ.
    if request.start_deadline < now:
        raise Refusal("expired", "the request expired before a runner took it")
    if branch_names.nonce_time(request.nonce) + policy.limits.max_age_s + skew < now:
        raise Unable("expired", f"the request is older than limits.max_age_s of the runner {policy.id}")


def _check_replay(branch: RequestBranch, request: Request, ledger: Ledger) -> None:
    """Check that the branch never had another request commit: one branch is for one request.

    The branch name contains nonce, preset and namespace, so nobody can use up a nonce by pushing to another branch. If
    the branch was deleted under a job, its answer was dropped; the same request on a new branch would run it again.
    """
    earlier = ledger.entry(branch.name)
    if not earlier:
        return
    is_new_branch = earlier.state == FENCED and branch.state is None
    has_answer = earlier.published is not None or earlier.state in set(wire.EXIT_CODES)
    if earlier.request != branch.request or has_answer or is_new_branch:
        message = f"the nonce {request.nonce} was used before, by the request {earlier.request[:12]}"
        raise Refusal("replayed", message)


def _check_commit(git: Git, branch: RequestBranch, request: Request) -> str | None:
    """Return the workload commit: the parent of the request commit."""
    parents = objects.parents_of(git, branch.request)
    named = [request.workload, *([request.against] if request.against is not None else [])]
    if request.workload is not None and parents != named:
        both = " and the baseline" if request.against is not None else ""
        message = f"the request commit is not made directly upon the workload{both} that it names"
        raise Refusal("workload_mismatch", message)
    return request.workload or (parents[0] if parents else None)


def _check_baseline(
    git: Git, baseline: str, workload: str | None, preset: Preset, params: Mapping[str, Value]
) -> None:
    """Refuse a comparison that the preset does not define, or of a tree with itself."""
    if preset.compare is None:
        message = (
            f"{preset.name} has no `compare` section here, so it does not say what to measure in two trees"
        )
        raise Unable("not_comparable", message, definition=preset.digest)
    if git.text("rev-parse", f"{baseline}^{{tree}}") == git.text("rev-parse", f"{workload}^{{tree}}"):
        raise Refusal(
            "same_tree", "the workload and the baseline are the same tree: there is nothing to compare"
        )
    _check_paths(git, baseline, preset, params, "baseline")


def _check_paths(git: Git, commit: str, preset: Preset, params: Mapping[str, Value], whose: str) -> None:
    """Refuse a path that is missing from a tree, before the operator is asked to approve the request.

    Symbolic links are checked again when the tree is written to disk.
    """
    for name, param in preset.params.items():
        if isinstance(param, PathParam):
            file = str(params[name]).partition("::")[0].rstrip("/")
            too_large: dict[str, ObjectInfo] = {}
            objects.locate(git, [f"{commit}:{file}"], too_large)
            if too_large:
                message = f"{name}: a folder on the way to {file} is too large to be read"
                raise Refusal("tree_too_large", message)
            answer = git.text("cat-file", "--batch-check=", "--follow-symlinks", stdin=f"{commit}:{file}\n")
            if answer.startswith("symlink"):
                raise Refusal("path_escape", f"{name}: {file} leads out of the {whose}'s tree")
            # Git reports a submodule as missing too; only its folder's tree says that it is a submodule.
            if answer and not (answer.endswith(" missing") and objects.entry_at(git, commit, file)):
                raise Refusal("no_such_path", f"{name}: the {whose}'s tree has no {file}")


def _check_folders(git: Git, commit: str) -> None:
    """Check the size of the report folders: their trees are read and rewritten for the answer."""
    folder = wire.REPORTS.partition("/")[0]
    too_large: dict[str, ObjectInfo] = {}
    there = objects.locate(git, (f"{commit}:{folder}", f"{commit}:{wire.REPORTS}"), too_large)
    for entry in (*there.values(), *too_large.values()):
        if entry.size > limits.TREE_BYTES:
            size = f"{entry.size} bytes; {limits.TREE_BYTES} are the most"
            raise Refusal("tree_too_large", f"the folder {folder} or one in it has {size}")


def _check_preset(
    request: Request, presets: Mapping[str, Preset], policy: Policy
) -> tuple[Preset, Checked, list[list[str]]]:
    # The preset whose definition refuses the parameters: a runner with the same one would refuse them too.
    refusing: Preset | None = None
    try:
        preset = find_preset(presets, request.preset)
        if field := policy.refused_by(preset):
            fix = f"its operator can add it under {field} in its policy"
            raise Unable(
                "preset_not_allowed", f"{preset.name} is not allowed by the runner {policy.id}: {fix}"
            )
        refusing = preset
        if request.schema_version == 1:
            # The older client sends every value as the text that the user typed.
            params = preset.check_texts({name: str(value) for name, value in request.params.items()})
        else:
            params = preset.check_params(request.params)
        refusing = None
        commands = preset.build_commands(params, policy.settings)
    except PresetError as error:
        fix = f" {error.fix}" if error.fix else ""
        if error.code in ("unknown_preset", "broken_preset"):
            fix = (
                f" That is what the runner {policy.id} has installed; its operator can change it there.{fix}"
            )
        message = f"{error.message}.{fix}" if fix else error.message
        raise Unable(error.code, message, definition=refusing.digest if refusing else None) from error
    if request.code is not None and request.code != preset.code:
        message = f"the manifest says code {request.code!r}; {preset.name} is {preset.code!r} here"
        raise Unable("code_mismatch", message, definition=preset.digest)
    return preset, params, commands
