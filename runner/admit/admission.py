"""Judging a request: from blobs alone, by this host's presets and policy. Nothing is checked out and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bridge import limits
from bridge.bus import branch_names, history, objects, wire
from bridge.bus.history import View
from bridge.errors import InfrastructureError, ManifestError, PresetError
from bridge.manifest import Request, parse_manifest, parse_time
from bridge.presets import Preset, find_preset
from bridge.presets.params import PathParam, Value
from bridge.system import strict_json
from bridge.system.git import Git
from bridge.system.git_output import Found
from runner.admit import trust
from runner.policy import Policy
from runner.refusal import Refusal
from runner.state.ledger import Ledger


@dataclass(frozen=True)
class Admitted:
    """A request that may be run, and everything that was decided about it."""

    view: View
    request: Request
    preset: Preset
    params: Mapping[str, Value]
    commands: list[list[str]]
    workload: str | None
    timeout_s: int
    # Why the requester's own code may run; None where none is run.
    trusted_by: str | None = None


def admit(git: Git, view: View, presets: Mapping[str, Preset], policy: Policy, ledger: Ledger) -> Admitted:
    """Decide on a request. Raises Refusal with the reason that is sent back, or Held where none is sent yet."""
    request = read_manifest(git, view)
    try:
        _check_branch(view.branch, request)
        _check_time(request, policy)
        _check_replay(view, request, ledger)
        workload = _check_commit(git, view, request)
        _check_folders(git, view.request)
        preset, params, commands = _check_preset(request, presets, policy)
        _check_paths(git, view.request, preset, params)
        trusted_by = trust.judge(git, view, preset, policy)
    except Refusal as refusal:
        refusal.request = request
        raise
    timeout = min(preset.timeout_s, policy.limits.timeout_s)
    return Admitted(view, request, preset, params, commands, workload, timeout, trusted_by)


def read_manifest(git: Git, view: View) -> Request:
    """Read the manifest of the request commit. Raises Refusal where there is none or it is not valid."""
    if not (view.request == view.tip or history.is_ancestor(git, view.request, view.tip)):
        raise Refusal("history_rewritten", "the request commit is no longer part of the branch")
    try:
        blob = objects.read_blob(git, view.request, wire.REQUEST, max_bytes=strict_json.MAX_BYTES)
        if blob is None:
            raise Refusal("no_manifest", f"the request commit has no file {wire.REQUEST}")
        return parse_manifest(blob)
    except (ManifestError, InfrastructureError) as error:
        if error.code not in _MANIFEST_CODES:
            raise
        raise Refusal(error.code, error.message) from error


_MANIFEST_CODES = ("too_large", "bad_json", "unknown_schema_version", "bad_nonce", "bad_manifest")


# Refusals that would be others at another time of day.
OF_AGE = ("expired", "not_yet_valid")


def wants_another(request: Request, presets: Mapping[str, Preset], policy: Policy) -> bool:
    """Say whether the request asks for labels that this runner lacks, so that it is left to others."""
    preset = presets.get(request.preset)
    wanted = {*(request.labels or ()), *(preset.labels if preset else ())}
    return not wanted <= set(policy.labels)


def _check_branch(branch: str, request: Request) -> None:
    """The branch must be the one that the manifest is for, so that a manifest copied elsewhere is worth nothing."""
    parsed = branch_names.parse_branch(branch)
    middle = f"{request.preset}-{request.nonce}"
    if parsed is None or branch != f"{parsed.prefix}{middle}{parsed.suffix}":
        raise Refusal(
            "branch_mismatch", f"the manifest asks for {middle}, which is not what the branch is called"
        )


def _check_time(request: Request, policy: Policy) -> None:
    now = datetime.now(UTC).timestamp()
    skew = policy.limits.clock_skew_s
    nonce_at = branch_names.nonce_time(request.nonce)
    made = parse_time(request.created_at).timestamp() if request.created_at else nonce_at
    if max(made, nonce_at) > now + skew:
        raise Refusal("not_yet_valid", "the request was made in the future by this runner's clock")
    ends = (
        parse_time(request.expires_at).timestamp()
        if request.expires_at
        else nonce_at + policy.limits.max_age_s
    )
    if min(ends, nonce_at + policy.limits.max_age_s) + skew < now:
        raise Refusal("expired", "the request expired before a runner took it")


def _check_replay(view: View, request: Request, ledger: Ledger) -> None:
    """A branch is good for one commit, and that until it is answered.

    Its name holds nonce, preset and namespace, so what others push under names of their own does not use it up.
    """
    seen = ledger.seen(view.branch)
    if seen and (seen.request != view.request or seen.state in set(wire.EXIT_CODES)):
        raise Refusal(
            "replayed", f"the nonce {request.nonce} was used before, by the request {seen.request[:12]}"
        )


def _check_commit(git: Git, view: View, request: Request) -> str | None:
    parents = objects.parents_of(git, view.request)
    if request.workload is not None and parents != [request.workload]:
        raise Refusal(
            "workload_mismatch", "the request commit is not made directly upon the workload that it names"
        )
    return request.workload or (parents[0] if parents else None)


def _not_run(name: str, policy: Policy) -> str:
    return f"{name} is not run by the runner {policy.id}: its operator lists what is, under presets in its policy"


def _check_paths(git: Git, commit: str, preset: Preset, params: Mapping[str, Value]) -> None:
    """Refuse a path that the request's tree does not hold, before anybody is asked to approve the request.

    Where links lead is looked at again when the tree is written.
    """
    for name, param in preset.params.items():
        if isinstance(param, PathParam):
            file = str(params[name]).partition("::")[0].rstrip("/")
            too_large: dict[str, Found] = {}
            objects.locate(git, [f"{commit}:{file}"], too_large)
            if too_large:
                raise Refusal(
                    "tree_too_large", f"{name}: a folder on the way to {file} is too large to be read"
                )
            said = git.text("cat-file", "--batch-check=", "--follow-symlinks", stdin=f"{commit}:{file}\n")
            if said.startswith("symlink"):
                raise Refusal("path_escape", f"{name}: {file} leads out of the request's tree")
            # Of a submodule git says that it is missing too; what it really is stands in its folder's tree.
            if said and not (said.endswith(" missing") and objects.list_tree(git, commit, file)):
                raise Refusal("no_such_path", f"{name}: the request's tree has no {file}")


def _check_folders(git: Git, commit: str) -> None:
    """The folders into which reports go are read and written anew for the answer, so they are weighed before."""
    folder, _, inner = wire.REPORTS.partition("/")
    places = (f"{commit}:{folder}", f"{commit}:{folder}/{inner}")
    too_large: dict[str, Found] = {}
    there = objects.locate(git, places, too_large)
    for place in places:
        found = there.get(place) or too_large.get(place)
        if found and found.size > limits.TREE_BYTES:
            message = (
                f"the folder {folder} or one in it has {found.size} bytes; {limits.TREE_BYTES} are the most"
            )
            raise Refusal("tree_too_large", message)


def _check_preset(
    request: Request, presets: Mapping[str, Preset], policy: Policy
) -> tuple[Preset, dict[str, Value], list[list[str]]]:
    try:
        preset = find_preset(presets, request.preset)
        if not policy.allows(preset.name):
            raise Refusal("preset_not_allowed", _not_run(preset.name, policy))
        given = request.params
        if request.schema_version == 1:
            # The older client writes every value as it was typed.
            given = preset.read_params({name: str(value) for name, value in given.items()})
        params = preset.check_params(given)
        commands = preset.build_commands(params, policy.settings)
    except PresetError as error:
        fix = f" {error.fix}" if error.fix else ""
        if error.code in ("unknown_preset", "broken_preset"):
            fix = (
                f" That is what the runner {policy.id} has installed; its operator can change it there.{fix}"
            )
        raise Refusal(error.code, f"{error.message}.{fix}" if fix else error.message) from error
    if request.code is not None and request.code != preset.code:
        raise Refusal(
            "code_mismatch", f"the manifest says code {request.code!r}; {preset.name} is {preset.code!r} here"
        )
    return preset, params, commands
