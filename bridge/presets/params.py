"""The kinds of parameter a preset can have. Each knows its bounds, reads text and turns a value into argv elements."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from bridge.common.errors import UsageError
from bridge.errors import PresetError
from bridge.reports import cache_spec

Value = bool | int | str
_WORD = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]


class PresetPart(BaseModel):
    """A part of a preset: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class _Param(PresetPart):
    help: str = ""
    # Checked but not used by any step: clients of older versions of the preset still send it.
    unused: bool = False

    @property
    def required(self) -> bool:
        """Return whether the parameter is required."""
        return getattr(self, "default", None) is None

    @property
    def allowed(self) -> str:
        """The accepted values in a few words."""
        raise NotImplementedError

    def read(self, text: str) -> Value:
        """Read the value from text."""
        return text

    def check(self, value: object) -> Value:
        """Return the value if it is of the kind and within its bounds.

        Raises:
            PresetError: it does not fit.
        """
        raise NotImplementedError

    def invalid_value(self, value: object, code: str) -> PresetError:
        """Return the error for a value that does not fit."""
        return PresetError(f"must be {self.allowed}, not {value!r}", code=code)

    def argv(self, value: Value) -> list[str]:
        """Return the argv elements for the value."""
        return [str(value)]

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if not self.required:
            try:
                self.check(getattr(self, "default"))  # noqa: B009 - each kind types its own
            except PresetError as error:
                raise ValueError(f"the default {error.message}") from error
        return self


class _TextParam(_Param):
    """A text. ``fault`` returns the code of what is wrong with one, or None."""

    def fault(self, text: str) -> str | None:
        raise NotImplementedError

    def check(self, value: object) -> Value:
        if not isinstance(value, str):
            raise self.invalid_value(value, "bad_type")
        if code := self.fault(value):
            raise self.invalid_value(value, code)
        return value


class IntParam(_Param):
    """A whole number from ``min`` to ``max``."""

    type: Literal["int"]
    # Negative values are not allowed: a leading dash could be taken for an option.
    min: Annotated[int, Field(ge=0)]
    max: int
    default: int | None = None

    @model_validator(mode="after")
    def _bounds_hold(self) -> "IntParam":
        if self.max < self.min:
            raise ValueError("max is below min")
        return self

    @property
    def allowed(self) -> str:  # noqa: D102
        return f"a whole number from {self.min} to {self.max}"

    def read(self, text: str) -> Value:  # noqa: D102
        if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
            raise self.invalid_value(text, "bad_type")
        return int(text)

    def check(self, value: object) -> Value:  # noqa: D102
        if type(value) is not int:
            raise self.invalid_value(value, "bad_type")
        if not self.min <= value <= self.max:
            raise self.invalid_value(value, "out_of_range")
        return value


class ChoiceParam(_TextParam):
    """A word from the list in ``values``."""

    type: Literal["enum"]
    values: Annotated[list[_WORD], Field(min_length=1)]
    default: str | None = None

    @property
    def allowed(self) -> str:  # noqa: D102
        return "one of " + ", ".join(self.values)

    def fault(self, text: str) -> str | None:  # noqa: D102
        return None if text in self.values else "out_of_range"


class FlagParam(_Param):
    """A switch. If it is on, its option is added to the command line."""

    type: Literal["flag"]
    option: Annotated[str, StringConstraints(pattern=r"^--[a-z][a-z0-9-]*$")]
    default: bool | None = False

    @property
    def allowed(self) -> str:  # noqa: D102
        return "true or false"

    def read(self, text: str) -> Value:  # noqa: D102
        known = {"true": True, "yes": True, "on": True, "1": True}
        known |= {"false": False, "no": False, "off": False, "0": False}
        if text.lower() not in known:
            raise self.invalid_value(text, "bad_type")
        return known[text.lower()]

    def check(self, value: object) -> Value:  # noqa: D102
        if not isinstance(value, bool):
            raise self.invalid_value(value, "bad_type")
        return value

    def argv(self, value: Value) -> list[str]:  # noqa: D102
        return [self.option] if value else []


class PathParam(_TextParam):
    """A path in the request's tree, below one of a few folders.

    This checks the text only. The runner, which has the tree, checks that no symbolic link leads out of the folder.
    """

    type: Literal["path"]
    under: Annotated[list[_WORD], Field(min_length=1)]
    default: str | None = None

    @property
    def allowed(self) -> str:  # noqa: D102
        return "a path below " + " or ".join(f"{folder}/" for folder in self.under)

    def fault(self, text: str) -> str | None:  # noqa: D102
        plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./:\[\]=-]{0,254}", text, re.ASCII)
        file, _, _ = text.partition("::")
        parts = PurePosixPath(file).parts
        # Refuse every leading dot. This also refuses "..", and ".git" in any spelling that a file system
        # treats as equal.
        clean = plain and "//" not in file and not any(part.startswith((".", "-")) for part in parts)
        is_below = any(parts[: len(root.parts)] == root.parts for root in map(PurePosixPath, self.under))
        return None if clean and "/." not in file and is_below else "path_escape"


class CacheParam(_TextParam):
    """A cache spec that stores codes, such as ``k=e8v@4.25,v=raw``; or one of a few words."""

    type: Literal["cache"]
    words: list[_WORD] = []
    default: str | None = None

    @property
    def allowed(self) -> str:  # noqa: D102
        return ", ".join(["a cache spec such as e8v@4.25, affine@4g64 or k=e8v@4.25,v=e8v@3.25", *self.words])

    def fault(self, text: str) -> str | None:  # noqa: D102
        try:
            packs = text in self.words or cache_spec.parse(text).packs
        except UsageError:
            packs = False
        return None if packs else "out_of_range"


Param = Annotated[IntParam | ChoiceParam | FlagParam | PathParam | CacheParam, Field(discriminator="type")]
