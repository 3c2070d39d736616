"""Decides whether a requester's own code may run here: by the policy, a signature, or an operator's approval.

This is checked when a request is admitted, and again before any of its files are written to disk. Each check reads the
list of signers and the approvals again, so a key that was taken off the list no longer counts.
"""

from bridge.bus import wire
from bridge.bus.history import RequestBranch
from bridge.errors import PolicyError
from bridge.presets import Preset
from bridge.requests.binding import Binding, repository_name
from bridge.system.git import Git
from runner.admit.approvals import Approvals
from runner.admit.signature import BadSignature, read_signed, signer_of
from runner.policy import Policy
from runner.refusal import NeedsApproval, Unable

CODE = "untrusted_code"
APPROVAL = "approval"
WAITS = wire.WAITS_FOR_APPROVAL


def why_trusted(git: Git, branch: RequestBranch, preset: Preset, policy: Policy) -> str | None:
    """Return why the request's own code may run; None if its preset runs no such code.

    Raises:
        Unable: the code may not run here.
        NeedsApproval: the operator may still approve it.
    """
    trust = policy.trust
    if preset.code != "request":
        return None
    subject = f"{preset.name} runs the requester's own code, which the runner {policy.id}"
    if trust.code_request == "allow":
        return "the policy allows it to everyone who can push"
    if trust.code_request == "deny":
        rule = "its operator decides, by trust.code_request in its policy"
        raise Unable(CODE, f"{subject} does not allow: {rule}")
    approved_by = Approvals(policy.state).of(branch.name, branch.request)
    if approved_by is not None:
        return f"{APPROVAL} by {approved_by}"
    try:
        return f"signature of {_signer(git, branch, preset, policy)}"
    except BadSignature as problem:
        if trust.unapproved == "hold":
            raise NeedsApproval(CODE, f"{WAITS}: {problem}") from problem
        fix = (
            "Sign it on your machine (kakeya run --sign), or ask the runner's operator to approve the commit."
        )
        raise Unable(CODE, f"{subject} allows only to those it trusts: {problem}. {fix}") from problem


def _signer(git: Git, branch: RequestBranch, preset: Preset, policy: Policy) -> str:
    """Return the signer of a request for this branch, this repository and this preset."""
    signed = read_signed(git, branch.request)
    if signed is None:
        raise BadSignature("it is not signed")
    if policy.trust.allowed_signers is None:
        raise BadSignature("this host has no list of signers")
    try:
        name = signer_of(signed, policy.trust.allowed_signers)
    except PolicyError as error:
        raise BadSignature("this host's list of signers cannot be used") from error
    binding = Binding.parse(signed.message)
    if binding is None:
        raise BadSignature("its signature does not say what it is for")
    if not binding.matches(signed.message, preset.name):
        raise BadSignature("the signed commit is not a request: its message holds more")
    if binding.branch != branch.name:
        raise BadSignature("it was signed for another branch")
    if binding.repository not in (repository_name(policy.bus.url), *policy.trust.repositories):
        raise BadSignature("it was signed for another repository")
    if binding.preset != preset.digest:
        raise BadSignature("it was signed for another definition of the preset than this host's")
    return name
