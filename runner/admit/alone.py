"""Refuses what a request cannot have if its manifest came without a bus: files, signatures, other runners."""

from collections.abc import Mapping

from bridge.presets import Preset
from bridge.without_bus import NO_FILES, needed_files
from runner.admit.manifests import Candidate
from runner.policy import Policy
from runner.refusal import Refusal


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
