"""The wire format of a request branch: paths, states, and the files of an answer."""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bridge.bus import branch_names
from bridge.common import limits, strict_json
from bridge.common.validation import describe
from bridge.errors import ExitCode, ManifestError, VerificationError, one_line

FOLDER = ".mac-bridge"
REQUEST = f"{FOLDER}/request.json"
STATE = f"{FOLDER}/state.json"
CANCEL = f"{FOLDER}/cancel.json"
RESULT = f"{FOLDER}/result.json"
EVIDENCE = f"{FOLDER}/evidence.dsse.json"
# The kinds of report that the preset declares (`bridge.reports.own`): a file of the answer, so a signature covers it.
KINDS = f"{FOLDER}/report-kinds.json"
# The comparison of two trees, which the runner writes here and, for readers of reports, among them. No job can write
# below this folder, so the equal file among the reports is the runner's too.
COMPARISON = f"{FOLDER}/comparison.json"
STREAM = f"{FOLDER}/stream.log"
LOGS = f"{FOLDER}/logs"
SUMMARY = f"{LOGS}/summary.json"
REPORTS = "results/research"
COMPARISON_REPORT = f"{REPORTS}/kakeya-compare.json"

# Prefix of the detail of a state in which the request waits for the operator's approval.
WAITS_FOR_APPROVAL = "waits for approval by the runner's operator"
# Part of the detail of a state in which runners that cannot run the request leave it to others; their ids follow.
LEFT_BY = "left to other runners by"
MOST_LEFT = 16
_LEFT_NOTE = re.compile(rf"{LEFT_BY} ([0-9a-f]{{16}}(?: [0-9a-f]{{16}}){{0,{MOST_LEFT - 1}}})$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# One part of a report's path. No shell, option parser or Unicode folding changes its meaning, it is not hidden, and
# every file system takes its length.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_-])?")
# Names that git expects in a repository, in lower case. They are refused, so that no folder of an answer is one.
_OF_GIT = frozenset((
    "head", "fetch_head", "orig_head", "merge_head", "config", "config.worktree", "commondir", "gitdir", "objects",
    "refs", "hooks", "packed-refs", "index", "info", "reftable", "shallow", "modules", "worktrees",
))  # fmt: skip
# Names of devices on Windows, with any ending.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|(?:com|lpt)[0-9])(?:\..*)?")

MAX_STATE = limits.STATE_BYTES
MAX_RESULT = limits.RESULT_BYTES
MAX_FILE = limits.FILE_BYTES
MAX_EVIDENCE = limits.EVIDENCE_BYTES


class State(StrEnum):
    """The state of a request."""

    REQUESTED = "requested"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    GATE_REJECTED = "gate_rejected"
    # A state for people and programs only. On the bus, runners write GATE_REJECTED with the verdict
    # INCOMPLETE, because clients of earlier versions know no further state.
    GATE_INCOMPLETE = "gate_incomplete"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        """Return whether the state is final."""
        return self in EXIT_CODES

    @property
    def is_taken(self) -> bool:
        """Return whether a runner holds the request."""
        return self in (State.CLAIMED, State.RUNNING)


EXIT_CODES = {
    State.SUCCEEDED: ExitCode.SUCCEEDED,
    State.FAILED: ExitCode.FAILED,
    State.REFUSED: ExitCode.REFUSED,
    State.CANCELLED: ExitCode.CANCELLED,
    State.TIMED_OUT: ExitCode.TIMED_OUT,
    State.GATE_REJECTED: ExitCode.GATE_REJECTED,
    State.GATE_INCOMPLETE: ExitCode.GATE_INCOMPLETE,
    State.LOST: ExitCode.INFRASTRUCTURE,
}


class WireFile(BaseModel):
    """A part of a file on the bus: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        # Bytes that are not UTF-8 were read as surrogates, which cannot be written to a file and read again.
        return strict_json.dumps(self.model_dump(mode="json")).encode("utf-8", "replace")


_File = TypeVar("_File", bound=WireFile)


def next_count(count: int) -> int:
    """Return the next count. A count at the limit stays there: a forged state may have set it to the limit."""
    return min(count + 1, limits.COUNTER)


Branch = Annotated[str, Field(max_length=limits.BRANCH_CHARS)]
Counter = Annotated[int, Field(ge=0, le=limits.COUNTER)]
# These become names of files and folders, so a forged answer must not contain a path here.
PresetName = Annotated[str, StringConstraints(pattern=rf"^(?:{branch_names.PRESET.pattern})$")]
Nonce = Annotated[str, StringConstraints(pattern=rf"^(?:{branch_names.NONCE.pattern})$")]
# `is_answer_path` checks the characters of the path and its folder.
AnswerPath = Annotated[str, Field(max_length=limits.PATH_LENGTH)]
_Item = TypeVar("_Item")
# Limits of an answer's lists: a small push can hold many entries, each as costly to its reader as a large file.
Steps = Annotated[list[_Item], Field(max_length=limits.ANSWER_STEPS)]
Notes = Annotated[list[_Item], Field(max_length=limits.ANSWER_NOTES)]
Named = Annotated[dict[str, _Item], Field(max_length=limits.ANSWER_NAMES)]


def _is_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("must be letters, digits, dots, dashes and underscores, 64 at most")
    return value


# A sentence for people: on one line, limited in length, and without control characters, whoever wrote it.
Sentence = Annotated[str, AfterValidator(one_line)]
# The name of a runner, and a label.
Name = Annotated[str, AfterValidator(_is_name)]
# Names from a branch are passed to git, and only a full id can never be a revision expression or an option.
CommitId = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class Runner(WireFile):
    """A runner: its name in its policy, and the id of its state directory."""

    id: Annotated[str, Field(max_length=64)]
    instance: Annotated[str, Field(max_length=64)]
    version: Annotated[str, Field(max_length=32)]


class StateFile(WireFile):
    """``.mac-bridge/state.json``, new in every commit that a runner makes."""

    schema_version: Literal[2]
    state: Annotated[State, Field(strict=False)]
    branch: Branch
    request: CommitId
    # A random text, so that two states are never the same commit.
    salt: Annotated[str, Field(max_length=64)]
    # The fencing token: it grows by one with each claim, so a late writer can be told from its successor.
    # Both counters stop at their limit, so that a written state can always be read.
    token: Counter
    sequence: Counter
    lease_s: Annotated[float, Field(gt=0, le=86_400)]
    runner: Runner
    at: Annotated[str, Field(max_length=64)]
    step: Counter | None = None
    detail: Annotated[Sentence, Field(max_length=1000)] = ""
    # Number of output bytes between the previous piece of log and this commit's piece that were not streamed.
    # None: the runner did not count them.
    left_out: Annotated[int, Field(ge=0, le=1 << 53)] | None = None
    # The labels of the runner. None: written by a runner that did not say.
    labels: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=32)] | None = None


class CancelFile(WireFile):
    """``.mac-bridge/cancel.json``, committed by the requester."""

    schema_version: Literal[2]
    branch: Branch
    request: CommitId
    by: Annotated[Sentence, Field(max_length=200)]
    at: Annotated[str, Field(max_length=64)]
    reason: Annotated[Sentence, Field(max_length=500)] = ""


class Reason(WireFile):
    """Why a request ended: a code for programs, and a message for people."""

    code: str
    message: Sentence


class CommandResult(WireFile):
    """One step: its command, and how the command ended."""

    argv: Annotated[list[str], Field(max_length=limits.ANSWER_ARGUMENTS)]
    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    seconds: float
    max_rss_bytes: int | None = None
    log: str
    survivors: Notes[str] = []
    # The exceeded limit (memory, processes, disk, files, free), and the highest observed use.
    exceeded: str | None = None
    peaks: Named[int] = {}


class LogDigest(WireFile):
    """One step's log. The digest covers the full stream, even if only head and tail were kept."""

    path: AnswerPath
    stream_sha256: str
    stream_bytes: Annotated[int, Field(ge=0)]
    kept_bytes: Annotated[int, Field(ge=0)]
    truncated: bool


class FileDigest(WireFile):
    """One file of the answer."""

    path: AnswerPath
    sha256: str
    size: Annotated[int, Field(ge=0)]


class Violation(WireFile):
    """One rule of the gate that a report breaks."""

    code: str
    message: Sentence
    path: str = ""
    # How to fix the violation; empty in answers that are older than this field.
    mend: Sentence = ""


class Gate(WireFile):
    """The gate's verdict on the reports."""

    # ACCEPTED_BY_REQUESTER: no check objects, and the request's own code measured: the requester vouches for it.
    verdict: Literal["ACCEPTED", "ACCEPTED_BY_REQUESTER", "REJECTED", "INCOMPLETE"]
    violations: Notes[Violation] = []
    # Findings that a reader should know, which do not affect the verdict.
    notes: Notes[Sentence] = []

    @property
    def accepted(self) -> bool:
        """Whether no check objects."""
        return self.verdict in ("ACCEPTED", "ACCEPTED_BY_REQUESTER")


def _each_its_own(logs: list[LogDigest]) -> list[LogDigest]:
    if len({log.path for log in logs}) != len(logs):
        raise ValueError("two steps have the same log")
    return logs


class Result(WireFile):
    """``.mac-bridge/result.json``: everything a reader needs to judge an answer."""

    schema_version: Literal[2]
    state: Annotated[State, Field(strict=False)]
    reason: Reason
    branch: str
    nonce: Nonce | None
    request: CommitId
    workload: CommitId | None
    requested_by: str | None
    # Why the requester's own code was run: the signer, the approval, or the policy.
    trusted_by: str | None = None
    preset: PresetName | None
    preset_digest: str | None
    code: Literal["installed", "request"] | None
    params: Named[bool | int | str]
    commands: Steps[CommandResult]
    exit_code: int
    token: Counter
    runner: Runner
    host: Named[Any]
    versions: Named[str | None]
    started_at: str
    finished_at: str
    seconds: float
    logs: Annotated[Steps[LogDigest], AfterValidator(_each_its_own)]
    files: Annotated[list[FileDigest], Field(max_length=limits.ANSWER_FILES)]
    skipped: Notes[str] = []
    gate: Gate | None = None
    # The sandbox of the job; None in answers that are older than this field.
    sandbox: Literal["bubblewrap", "seatbelt", "off"] | None = None

    @property
    def shown_state(self) -> State:
        """The state as programs show it: incomplete reports are not rejected reports."""
        return shown_state(self.state, self.gate)


def shown_state(state: State, gate: Gate | None) -> State:
    """Return a state as programs show it, given the gate's verdict in the answer."""
    incomplete = state is State.GATE_REJECTED and gate is not None and gate.verdict == "INCOMPLETE"
    return State.GATE_INCOMPLETE if incomplete else state


def is_answer_path(path: str) -> bool:
    """Return whether an answer may contain a file at this path, which readers write to their disks.

    The path is below the runner's folder or that of reports. Each part is a plain ASCII name without a meaning for git,
    a shell or a file system.
    """
    tops = (f"{FOLDER}/", f"{REPORTS}/")
    inner = next((path.removeprefix(top) for top in tops if path.startswith(top)), "")
    return all(
        _PART.fullmatch(part) and part.lower() not in _OF_GIT and not _DEVICE.fullmatch(part.lower())
        for part in inner.split("/")
    )


def parse_state(data: bytes | None) -> StateFile | None:
    """Read a state file; None if it is missing or invalid."""
    return parse(StateFile, data, MAX_STATE)


def declined_by(state: StateFile | None) -> list[str]:
    """Return the instance ids of the runners that have recorded in a request's state that they leave it to others."""
    note = _LEFT_NOTE.search(state.detail) if state and state.state is State.REQUESTED else None
    return note[1].split() if note else []


def parse_cancel(data: bytes | None) -> CancelFile | None:
    """Read a cancel file; None if it is missing or invalid."""
    return parse(CancelFile, data, MAX_STATE)


def parse(model: type[_File], data: bytes | None, max_bytes: int) -> _File | None:
    """Read a small file; None if it is missing or invalid."""
    if data is None:
        return None
    try:
        return model.model_validate(strict_json.loads(data, max_bytes=max_bytes))
    except (ValidationError, ManifestError):
        return None


def parse_result(data: bytes | None) -> Result:
    """Read a result; VerificationError with the reason if it is invalid."""
    if data is None:
        raise VerificationError(f"there is no {RESULT}")
    try:
        value = strict_json.loads(data, what=RESULT, max_bytes=MAX_RESULT, max_depth=12)
    except ManifestError as error:
        raise VerificationError(error.message) from error
    try:
        return Result.model_validate(value)
    except ValidationError as error:
        raise VerificationError(f"{RESULT} is not valid: {describe(error, Result, value)[0]}") from error
