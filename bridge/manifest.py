"""The request manifest, ``.mac-bridge/request.json``: schema versions 1 and 2.

Parsing has no side effect and needs no preset. The runner judges later whether it runs the request.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bridge.bus import branch_names
from bridge.common import strict_json
from bridge.common.validation import describe, near
from bridge.errors import ManifestError

VERSIONS = (1, 2)
MAX_PARAMS = 32
MAX_LIFETIME = timedelta(days=30)

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Scalar = bool | int | float | str


class Request(BaseModel):
    """The manifest of a request. Frozen; unknown fields are refused.

    The fields that schema version 1 lacks are None in a version-1 request.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    schema_version: Literal[1, 2]
    preset: Annotated[str, Field(max_length=64)]
    params: dict[str, Any]
    ref: Annotated[str, Field(min_length=1, max_length=255)]
    requested_by: Annotated[str, Field(min_length=1, max_length=200)]
    nonce: str
    workload: str | None = None
    created_at: str | None = None
    expires_at: str | None = None
    code: Literal["installed", "request"] | None = None
    labels: Annotated[list[str], Field(max_length=16)] | None = None
    # The commit that the workload is compared with; None if only the workload runs.
    against: str | None = None

    @field_validator("preset")
    @classmethod
    def _preset_is_a_name(cls, value: str) -> str:
        if not branch_names.PRESET.fullmatch(value):
            raise ValueError("is not a preset's name")
        return value

    @field_validator("ref", "requested_by")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            raise ValueError("must be printable text")
        return value

    @field_validator("nonce")
    @classmethod
    def _nonce_is_fresh_form(cls, value: str) -> str:
        if not branch_names.NONCE.fullmatch(value):
            raise ValueError("must be unix seconds, a dash and 6 to 32 hexadecimal digits")
        return value

    @field_validator("workload", "against")
    @classmethod
    def _workload_is_a_commit(cls, value: str | None) -> str | None:
        if value is not None and not COMMIT.fullmatch(value):
            raise ValueError("must be a full commit id")
        return value

    @field_validator("created_at", "expires_at")
    @classmethod
    def _time_is_utc(cls, value: str | None) -> str | None:
        if value is not None:
            if not _TIME.fullmatch(value):
                raise ValueError("must be a UTC time such as 2026-01-31T12:00:00Z")
            parse_time(value)
        return value

    @field_validator("labels")
    @classmethod
    def _labels_are_words(cls, value: list[str] | None) -> list[str] | None:
        if any(not _LABEL.fullmatch(label) for label in value or ()):
            raise ValueError("must be letters, digits, dots, dashes and underscores")
        return value

    @field_validator("params")
    @classmethod
    def _params_are_few_and_named(cls, value: dict[str, Any]) -> dict[str, Scalar]:
        if len(value) > MAX_PARAMS:
            raise ValueError(f"holds more than {MAX_PARAMS} entries")
        for name, item in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
                raise ValueError(f"has an entry {name!r}, which is no parameter's name")
            if not isinstance(item, Scalar):
                raise ValueError(f"{name} must be text, a number, true or false")
        return value

    @model_validator(mode="after")
    def _version_decides_the_fields(self) -> "Request":
        later = ("workload", "created_at", "expires_at", "code")
        present = [name for name in later if getattr(self, name) is not None]
        newer = [*present, *(name for name in ("labels", "against") if getattr(self, name) is not None)]
        if self.schema_version == 1 and newer:
            raise ValueError(f"{newer[0]} is not a field of schema version 1")
        missing = [name for name in later if getattr(self, name) is None]
        if self.schema_version != 1 and missing:
            raise ValueError(f"{missing[0]} is missing")
        if self.created_at and self.expires_at:
            life = parse_time(self.expires_at) - parse_time(self.created_at)
            if not timedelta(0) < life <= MAX_LIFETIME:
                raise ValueError(f"expires_at must lie within {MAX_LIFETIME.days} days after created_at")
        return self

    @property
    def made_at(self) -> float:
        """When it was made, in Unix seconds: by its nonce or by ``created_at``, the later of the two."""
        by_nonce = branch_names.nonce_time(self.nonce)
        return max(by_nonce, parse_time(self.created_at).timestamp()) if self.created_at else by_nonce

    @property
    def start_deadline(self) -> float:
        """The time after which no runner may start it, in Unix seconds."""
        latest = branch_names.nonce_time(self.nonce) + MAX_LIFETIME.total_seconds()
        return min(latest, parse_time(self.expires_at).timestamp()) if self.expires_at else latest

    def to_json(self) -> str:
        """Return the manifest's text."""
        return strict_json.dumps(self.model_dump(exclude_none=True))


def parse_manifest(text: str | bytes) -> "Request":
    """Read a manifest. Nothing is executed and nothing else is read.

    Raises:
        ManifestError: its ``code`` is one of ``too_large``, ``bad_json``, ``unknown_schema_version``, ``bad_nonce``,
            ``bad_manifest``.
    """
    value = strict_json.loads(text)
    if not isinstance(value, dict):
        hint = ": it is JSON inside a quoted text" if isinstance(value, str) else ""
        raise ManifestError(f"the manifest is not a JSON object{hint}", code="bad_manifest")
    version = value.get("schema_version")
    if type(version) is not int or version not in VERSIONS:
        raise ManifestError(_about_version(value), code="unknown_schema_version")
    try:
        return Request.model_validate(value)
    except ValidationError as error:
        message, field = describe(error, Request, value)
        code = "bad_nonce" if field == "nonce" else "bad_manifest"
        raise ManifestError(f"the manifest is not valid: {message}", code=code) from error


def _about_version(manifest: Mapping[str, Any]) -> str:
    if "schema_version" not in manifest:
        unknown = [name for name in islice(manifest, MAX_PARAMS) if name not in Request.model_fields]
        for name in unknown:
            if remark := near(name, ["schema_version"]):
                return f"the manifest is not valid: {name} is not a known field{remark}"
    known = " and ".join(map(str, VERSIONS))
    return f"schema_version is {manifest.get('schema_version')!r}; this program knows {known}"


def parse_time(text: str) -> datetime:
    """Read a UTC time such as 2026-01-31T12:00:00Z.

    Raises:
        ValueError: the text is no such time.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """Write a time as manifests and results do: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
