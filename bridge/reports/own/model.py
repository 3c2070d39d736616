"""The declaration of a kind of report in a preset, and the file in which an answer carries it."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from bridge.common import strict_json
from bridge.common.errors import ManifestError
from bridge.common.validation import describe_all
from bridge.reports.kinds import KINDS
from bridge.reports.own.pointer import Pointer
from bridge.reports.own.schema import check_schema

_KIND = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
# The numbers of kinds and of claims that a preset may declare, and the bytes of their declaration in an
# answer.
MAX_KINDS, MAX_CLAIMS, MAX_BYTES = 8, 32, 256 * 1024
_MAX_DEPTH = 32
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9%][A-Za-z0-9%/ ._^*-]{0,23}$")]


def check_kind(name: str) -> str:
    """Return the name of a kind that a preset can declare. Another name is a ValueError."""
    if not _KIND.fullmatch(name) or len(name) > 64:  # noqa: PLR2004 - as other names
        raise ValueError(
            "must be lower-case letters and digits, with single dots, dashes or underscores between"
        )
    if name in (*KINDS, "none", "reports") or name.startswith("kakeya."):
        raise ValueError("is a name of the bridge's own; choose another")
    return name


Kind = Annotated[str, AfterValidator(check_kind)]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, defer_build=True
    )


class OwnClaim(_Part):
    """One figure of a report: where its value stands, and how its samples give that value."""

    name: _Name
    pointer: Pointer
    unit: Unit
    better: Literal["higher", "lower"]
    # A pointer to the samples. Without samples, the value is shown as the run wrote it.
    samples: Pointer | None = None
    min_samples: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    derive: Literal["median", "mean", "ratio"] = "median"
    # The samples of the other arm: a ratio is the median of `samples` divided by the median of `against`.
    against: Pointer | None = None

    @model_validator(mode="after")
    def _has_its_samples(self) -> "OwnClaim":
        if self.samples is None and {"derive", "against", "min_samples"} & self.model_fields_set:
            raise ValueError("needs `samples`, the pointer to the list of its samples")
        if (self.derive == "ratio") != (self.against is not None):
            raise ValueError("needs `against`, the other arm's samples, if and only if `derive` is ratio")
        return self

    @property
    def definition(self) -> str:
        """How the value comes about, in words."""
        better = f"in {self.unit}, {self.better} is better"
        if self.samples is None:
            return f"as the run wrote it, {better}"
        if self.derive == "ratio":
            return f"the median of {self.samples} divided by the median of {self.against}, {better}"
        return f"the {self.derive} of {self.samples}, {better}"


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    check_schema(schema)
    return schema


def _no_name(schema: object) -> object:
    if not isinstance(schema, dict):
        raise ValueError("must be a JSON Schema, or the name of a .json file beside the preset's")
    return schema


class OwnKind(_Part):
    """A kind of report."""

    json_schema: Annotated[dict[str, Any], AfterValidator(_schema), BeforeValidator(_no_name)] = Field(
        alias="schema"
    )
    claims: Annotated[list[OwnClaim], Field(max_length=MAX_CLAIMS)] = []

    @model_validator(mode="after")
    def _claims_differ(self) -> "OwnKind":
        names = [claim.name for claim in self.claims]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two claims are called {twice[0]}")
        return self


OwnKinds = Annotated[dict[Kind, OwnKind], Field(max_length=MAX_KINDS)]


class _File(_Part):
    version: Literal[1]
    kinds: OwnKinds


def dump_kinds(kinds: Mapping[str, OwnKind]) -> bytes:
    """Return the file with a preset's kinds for an answer. Equal kinds give equal bytes."""
    plain = {name: kind.model_dump(by_alias=True, exclude_defaults=True) for name, kind in kinds.items()}
    return json.dumps({"version": 1, "kinds": plain}, sort_keys=True, indent=1).encode() + b"\n"


def read_kinds(data: bytes) -> dict[str, OwnKind]:
    """Return the kinds in a file that ``dump_kinds`` made, which may be a stranger's.

    Raises:
        ManifestError: it cannot be read, or exceeds the limits of a preset.
    """
    name = "the file of report kinds"
    parsed = strict_json.loads(data, what=name, max_bytes=MAX_BYTES, max_depth=_MAX_DEPTH)
    try:
        return _File.model_validate(parsed).kinds
    except ValidationError as error:
        raise ManifestError(f"{name} is not valid: {describe_all(error, _File, parsed)}") from error
