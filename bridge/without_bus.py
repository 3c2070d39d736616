"""A request that no git bus carries: its manifest alone. Its workload is a commit without files, the same for all."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from bridge.bus.objects import EMPTY_TREE
from bridge.common.advice import step
from bridge.errors import UsageError
from bridge.manifest import Request
from bridge.presets import Preset
from bridge.requests.request_commit import build_manifest, check_lifetime

# The commit that `workload` names, and its content.
NO_FILES = "b8918eba37110d87a90059bb09882797766f6c8b"
_BY = "kakeya <nobody@localhost> 1577836800 +0000"
NO_FILES_COMMIT = f"tree {EMPTY_TREE}\nauthor {_BY}\ncommitter {_BY}\n\nNo files\n".encode()
# The `ref` of such a request.
REF = "none"


def make_manifest(
    preset: Preset,
    params: Mapping[str, object],
    *,
    lifetime: timedelta,
    labels: Sequence[str],
    requested_by: str,
) -> Request:
    """Return the manifest of a request that goes to a runner without a bus.

    Raises:
        UsageError: it may not wait for so long, or its job needs files.
    """
    check_lifetime(lifetime)
    if reason := needed_files(preset):
        message = f"the request {reason}, and a manifest alone brings no files"
        raise UsageError(message, fix=step("Send it over a git bus", "run", preset.name))
    return build_manifest(
        preset,
        params,
        ref=REF,
        requested_by=requested_by,
        workload=NO_FILES,
        lifetime=lifetime,
        labels=labels,
    )


def needed_files(preset: Preset) -> str:
    """Return which files of the requester a preset's job reads, in words; empty if it reads none."""
    if preset.code == "request":
        return f"is for {preset.name}, which runs the requester's own code"
    if preset.inputs:
        return f"is for {preset.name}, which reads the requester's files"
    return ""
