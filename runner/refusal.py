"""The exception that carries a refusal to the answer."""

from bridge.manifest import Request

_AGAIN = "Send a new request from your machine: kakeya run"
_AGAIN_ALONE = "Make a new manifest: kakeya manifest"
_TREE = "Change the files on your machine, and send a new request"
_BOUND = "Let the job use less, or ask the operator of the runner {runner} to raise the limits in its policy"
# Where to take the next step, for reasons whose message does not name a machine.
_WHERE = {
    **dict.fromkeys(("expired", "replayed", "branch_mismatch", "workload_mismatch", "code_mismatch"), _AGAIN),
    **dict.fromkeys(("history_rewritten", "no_manifest", "same_tree"), _AGAIN),
    **dict.fromkeys(("hostile_tree", "bad_inputs", "inputs_too_large", "no_such_path", "path_escape"), _TREE),
    **dict.fromkeys(("memory", "processes", "disk", "files", "timeout", "tree_too_large"), _BOUND),
    "no_files": "Send it over a git bus: kakeya run",
    "no_label": "Send it to a machine whose runner has them",
    "free": "The operator of the runner {runner} has to make room on its disk",
    "not_yet_valid": "Set the clock of the machine that sent it, unless that of the runner {runner} is wrong",
    "supervisor_lost": "Send it again; if it happens again, its cause is in the log of the runner {runner}",
}


def with_place(code: str, message: str, runner: str, *, has_bus: bool = True) -> str:
    """Return the reason for the requester, with what to do and on which machine."""
    where = _WHERE.get(code)
    if where == _AGAIN and not has_bus:
        where = _AGAIN_ALONE
    return f"{message.rstrip('.')}. {where.format(runner=runner)}." if where else message


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that will not run. Carries a code for programs and a message for the requester."""

    def __init__(self, code: str, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request = request


class Unable(Refusal):
    """A request that this runner cannot run, by its policy or its installation. Another runner may be able to.

    ``definition`` is the digest of the preset that does not fit the request: another runner with the same definition
    cannot run it either. ``is_new`` says that this process could run the preset before: the fault may pass.
    """

    def __init__(
        self,
        code: str,
        message: str,
        request: Request | None = None,
        *,
        definition: str | None = None,
        is_new: bool = False,
    ) -> None:
        super().__init__(code, message, request)
        self.definition = definition
        self.is_new = is_new


class NeedsApproval(Refusal):
    """A request that is neither run nor refused now, because the operator may still approve it."""
