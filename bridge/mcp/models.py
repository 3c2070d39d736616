"""The arguments and results of each tool. The schemas for agents are generated from these models."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from bridge.common.limits import BRANCH_CHARS
from bridge.manifest import MAX_LIFETIME

# Clients give up on a call that was silent for 60 seconds.
SECONDS = 50
_LONGEST_S = int(MAX_LIFETIME.total_seconds())

_Offset = Annotated[int, Field(ge=0, le=1_000_000)]
_Request = Annotated[
    str, Field(description="Branch or a part of it; default: your last one", max_length=BRANCH_CHARS)
]


def _as_texts(value: object) -> object:
    """Return parameters given as an object as ``NAME=VALUE`` texts."""
    if not isinstance(value, dict):
        return value
    return [f"{name}={_as_text(item)}" for name, item in value.items()]


def _as_text(value: object) -> str:
    """Return a value, or a list of values, as the text after ``NAME=``."""
    if isinstance(value, list):
        texts = [_as_text(item) for item in value]
        return (";" if any("," in text for text in texts) else ",").join(texts)
    return value if isinstance(value, str) else json.dumps(value)


class Arguments(BaseModel):
    """Base of arguments: unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _is_printable(cls, value: object) -> object:
        """Refuse texts that no branch, name or reason contains, and that no program can be given."""
        texts = value if isinstance(value, list) else [value]
        if not all(text.isprintable() for text in texts if isinstance(text, str)):
            raise ValueError("must be printable characters on one line")
        return value


class Answer(BaseModel):
    """A tool's result. Fields that are None are left out.

    Free text that somebody else could have written on the bus is in fields named ``untrusted_*``. Names on the bus
    (branches, runners, labels) are outside of them, if they are one word.
    """


class Page(Arguments):
    """Base of lists that may not fit into one answer."""

    offset: _Offset = 0


class Presets(Page):
    """Arguments of ``kakeya_presets``."""

    name: Annotated[str, Field(description="Show this one in full", max_length=64)] = ""


class Ask(Arguments):
    """Arguments of ``kakeya_run``."""

    preset: Annotated[str, Field(max_length=64)]
    # The schema asks for texts, because hosts with strict schemas cannot fill an object whose names they do not know.
    params: Annotated[
        list[str], BeforeValidator(_as_texts), Field(description="NAME=VALUE each; n=2,4 is a sweep")
    ] = []
    ref: Annotated[str, Field(description="Commit or branch to run on", max_length=255)] = "HEAD"
    against: Annotated[str, Field(description="Commit to compare with, in one job", max_length=255)] = ""
    reuse: Annotated[bool, Field(description="Take a signed answer to the same question if there is one")] = (
        False
    )
    snapshot: Annotated[bool, Field(description="Send the uncommitted changes of tracked files too")] = False
    labels: Annotated[list[str], Field(description="Labels that the runner must have")] = []
    expires_s: Annotated[
        int,
        Field(description="Seconds that the request may wait for a runner", ge=1, le=_LONGEST_S),
    ] = 86_400
    idempotency_key: Annotated[
        str, Field(description="Repeating a call with the same key never starts a second run", max_length=200)
    ] = ""


class About(Arguments):
    """Arguments of ``kakeya_status``."""

    request: _Request = ""


class Wait(About):
    """Arguments of ``kakeya_wait``."""

    seconds: Annotated[float, Field(ge=0, le=3600)] = SECONDS


class Logs(About):
    """Arguments of ``kakeya_logs``."""

    offset: Annotated[int, Field(description="Negative: from the end")] = 0
    limit: Annotated[int, Field(ge=1, le=2000)] = 1600


class Fetch(About):
    """Arguments of ``kakeya_fetch``."""

    out: Annotated[str, Field(description="New folder, relative", max_length=255)] = ""
    offset: _Offset = 0


class Cancel(Arguments):
    """Arguments of ``kakeya_cancel``."""

    request: Annotated[str, Field(max_length=BRANCH_CHARS, min_length=1)]
    reason: Annotated[str, Field(max_length=200)] = ""


class Recent(Page):
    """Arguments of ``kakeya_list``."""

    limit: Annotated[int, Field(ge=1, le=50)] = 10
    group: Annotated[str, Field(description="Only this sweep", max_length=12)] = ""


class Check(Answer):
    """One check of the doctor."""

    name: str
    ok: bool | None = None
    message: str
    untrusted_message: str | None = None
    fix: str | None = None


class Doctor(Answer):
    """Result of ``kakeya_doctor``."""

    ready: bool
    checks: list[Check]
    next_offset: int | None = None


class Job(Answer):
    """A preset."""

    name: str
    description: str
    params: list[str]
    # Where the preset comes from (left out for built-in presets in a list), and which runners offer it.
    source: str | None = None
    runners: str | None = None
    # Replaces the fields above if only a runner's announcement describes the preset.
    untrusted_description: str | None = None
    untrusted_params: list[str] | None = None


class Jobs(Answer):
    """Result of ``kakeya_presets``."""

    presets: list[Job]
    next_offset: int | None = None


class Sent(Answer):
    """Result of ``kakeya_run``."""

    # Of a sweep, the id of its group, which other tools take in place of a branch.
    branch: str
    existing: bool
    points: int | None = None
    # Here and below: its bus, if there are several.
    bus: str | None = None


class Standing(Answer):
    """Result of ``kakeya_wait``, ``kakeya_status`` and ``kakeya_cancel``."""

    branch: str
    state: str
    done: bool
    exit_code: int | None = None
    elapsed_s: float | None = None
    untrusted_detail: str | None = None
    position: int | None = None
    waits_for: str | None = None
    outlook: str | None = None
    untrusted_last_line: str | None = None
    verified: str | None = None
    # Who vouches for the answer, and so for the verdict; None for one that does not hold.
    voucher: str | None = None
    untrusted_check: str | None = None
    gate: Literal["ACCEPTED", "ACCEPTED_BY_REQUESTER", "REJECTED", "INCOMPLETE"] | None = None
    untrusted_gap: str | None = None
    untrusted_mend: list[str] | None = None


class Log(Answer):
    """Result of ``kakeya_logs``."""

    branch: str
    done: bool
    offset: int
    untrusted_log: str
    next_offset: int | None = None


class Fetched(Answer):
    """Result of ``kakeya_fetch``."""

    folder: str
    untrusted_files: list[str]
    state: str
    exit_code: int
    verified: str
    # Whose key signed the answer, as in the result of ``kakeya_wait``.
    voucher: str | None = None
    gate: Literal["ACCEPTED", "ACCEPTED_BY_REQUESTER", "REJECTED", "INCOMPLETE"] | None = None
    next_offset: int | None = None


class Row(Answer):
    """One request of ``kakeya_list``."""

    branch: str
    bus: str | None = None
    state: str
    verified: str | None = None
    age_s: int | None = None
    waits_for: str | None = None
    group: str | None = None
    untrusted_detail: str | None = None


class Rows(Answer):
    """Result of ``kakeya_list``."""

    requests: list[Row]
    # Buses that do not answer, each with the reason.
    untrusted_left_out: str | None = None
    next_offset: int | None = None


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a short JSON schema of a model: without titles, class descriptions and null alternatives."""
    document = model.model_json_schema()
    parts = document.pop("$defs", {})
    plain = _plain(document, parts)
    assert isinstance(plain, dict)  # noqa: S101 - a model's schema is an object
    return plain


def _plain(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _plain(parts[node["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in node:
        (only,) = [option for option in node["anyOf"] if option != {"type": "null"}]
        return _plain(only, parts)
    members = {key: value for key, value in node.items() if key != "title" and not _says_nothing(key, value)}
    if "properties" in members:
        members.pop("description", None)
        members["properties"] = {name: _plain(value, parts) for name, value in members["properties"].items()}
    return {key: value if key == "properties" else _plain(value, parts) for key, value in members.items()}


def _says_nothing(key: str, value: object) -> bool:
    return (key == "default" and value in ("", None, [], False)) or (
        key == "additionalProperties" and value is True
    )
