"""A preset: a named job with typed, bounded parameters. Checks the parameters and builds the commands."""

import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NewType

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bridge.bus import branch_names
from bridge.bus.wire import Name
from bridge.common import advice
from bridge.common import limits as bounds
from bridge.common.advice import Advice
from bridge.common.validation import near
from bridge.errors import PresetError
from bridge.presets.compare import Compare
from bridge.presets.params import Param, PresetPart, Value
from bridge.reports.kinds import COMPARE, KINDS
from bridge.reports.own.model import OwnKinds

_ENV_TOKEN = re.compile(r"\$\{ENV:(?P<name>[A-Z][A-Z0-9_]{0,63})\}")
_PARAM_TOKEN = re.compile(r"\{(?P<name>[a-z][a-z0-9_]{0,63})\}")
_GLOB = re.compile(r"results/research/[A-Za-z0-9_*][A-Za-z0-9_.*-]*(?:/[A-Za-z0-9_*][A-Za-z0-9_.*-]*)*")
# A pattern for files of the workspace: a relative path whose parts may contain `*`.
_LEFT = re.compile(r"(?!-)[A-Za-z0-9_.*+-]+(?:/[A-Za-z0-9_.*+-]+)*")
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
# Linux limits an environment variable to 128 KiB, and no system allows a NUL in one.
EnvValue = Annotated[str, StringConstraints(max_length=32_768, pattern=r"^[^\x00]*$")]

# Variables that make a child load or run code before its own first line. No preset can set or pass them.
_NEVER_SET = re.compile(r"(?:DYLD|LD|GIT|PYTHON|NODE|PERL|RUBY|BASH)_?.*|ENV|IFS|PATH|HOME|TMPDIR|SHELLOPTS")

# Variables that hold, or lead to, a token of the host. Values of settings are published with the commands.
_SECRET = re.compile(r"HF_TOKEN(?:_PATH)?|HUGGING_?FACE_(?:HUB_)?TOKEN|KAKEYA_BUS_TOKEN")

# Checked values of all of a preset's parameters. Only `Preset` makes them.
Checked = NewType("Checked", dict[str, Value])


class Limits(PresetPart):
    """The resource limits of a job."""

    file_mb: Annotated[int, Field(ge=1, le=65_536)] = 2_048
    # Limits for all processes of the job together and for its whole workspace; None: only the host's limit applies.
    memory_mb: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    processes: Annotated[int, Field(ge=4, le=100_000)] = 512
    disk_mb: Annotated[int, Field(ge=1, le=16_777_216)] = 32_768
    files: Annotated[int, Field(ge=16, le=100_000_000)] = 400_000
    open_files: Annotated[int, Field(ge=16, le=65_536)] = 4_096
    report_mb: Annotated[int, Field(ge=1, le=64)] = 16
    reports: Annotated[int, Field(ge=1, le=1_000)] = 100
    all_reports_mb: Annotated[int, Field(ge=1, le=256)] = 64


_ENDING = Annotated[str, StringConstraints(pattern=r"^\.[a-z0-9]{1,16}$")]


class Inputs(PresetPart):
    """Files of the request's tree that a job reads as data: plain files only, within bounds, and never run."""

    # The folder whose files are copied into the workspace, and the accepted endings of their names.
    under: Literal["results/research"]
    ending: _ENDING | Annotated[list[_ENDING], Field(min_length=1, max_length=8)]
    files: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    file_mb: Annotated[int, Field(ge=1, le=64)] = 16
    total_mb: Annotated[int, Field(ge=1, le=1_024)] = 256

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files' names."""
        return (self.ending,) if isinstance(self.ending, str) else tuple(self.ending)


class Step(PresetPart):
    """One command: a list of argv elements, each literal, ``{param}`` or ``${ENV:NAME}`` as a whole."""

    argv: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=4096)]],
        Field(min_length=1, max_length=bounds.ANSWER_ARGUMENTS),
    ]

    @field_validator("argv")
    @classmethod
    def _tokens_are_whole(cls, argv: list[str]) -> list[str]:
        for token in argv:
            whole = _ENV_TOKEN.fullmatch(token) or _PARAM_TOKEN.fullmatch(token)
            if not whole and re.search(r"\$\{|\{[a-z]\w*\}|[\x00\n\r]", token):
                raise ValueError(f"{token!r}: a placeholder must be the whole element")
        if not (_ENV_TOKEN.fullmatch(argv[0]) or argv[0].startswith("/")):
            rule = "must be an absolute path or ${ENV:NAME}: nothing is looked up on a PATH"
            raise ValueError(f"{argv[0]!r} {rule}")
        return argv


class Preset(BaseModel):
    """A job that can be requested by name. Frozen; unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ignored_types=(cached_property,), defer_build=True
    )

    name: str
    description: Annotated[str, Field(min_length=1, max_length=500)]
    # What nobody should conclude from a run. It changes nothing that runs, so it is no part of the digest.
    cannot_show: Annotated[str, Field(max_length=200, exclude=True)] = ""
    code: Literal["installed", "request"]
    steps: Annotated[list[Step], Field(min_length=1, max_length=bounds.ANSWER_STEPS)]
    params: Annotated[dict[str, Param], Field(max_length=bounds.ANSWER_NAMES)] = {}
    timeout_s: Annotated[int, Field(ge=1, le=24 * 3600)]
    collect: list[str] = []
    # Patterns of files in the workspace. Without a new file for each, the last step has failed.
    leaves: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=16)] = []
    inputs: Inputs | None = None
    # Kinds of report of the preset's own, by name.
    reports: OwnKinds = {}
    # `none`, `reports` (of any kind that the gate knows), or a list of kinds (exactly one report of each).
    gate: str | Annotated[list[str], Field(min_length=1)] = "none"
    labels: list[Name] = []
    requires: list[Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_.]*$")]] = []
    env: dict[EnvName, EnvValue] = {}
    pass_env: list[EnvName] = []
    network: bool = False
    limits: Limits = Limits()
    # What `kakeya run --against` measures; None: two trees cannot be compared.
    compare: Compare | None = None

    @field_validator("name")
    @classmethod
    def _name_is_plain(cls, value: str) -> str:
        if not branch_names.PRESET.fullmatch(value):
            raise ValueError("must be lower-case letters, digits and dashes")
        return value

    @field_validator("collect")
    @classmethod
    def _reports_stay_together(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not _GLOB.fullmatch(pattern) or ".." in pattern:
                rule = "must lie below results/research/, and consist of letters, digits, ., _, - and *"
                raise ValueError(f"{pattern!r} {rule}")
        return value

    @field_validator("leaves")
    @classmethod
    def _left_files_lie_in_the_workspace(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if not _LEFT.fullmatch(pattern) or not {".", ".."}.isdisjoint(pattern.split("/")):
                rule = "must be a relative path of letters, digits, ., _, +, - and *"
                raise ValueError(f"{pattern!r} {rule}")
        return value

    @field_validator("gate")
    @classmethod
    def _gate_knows_the_kinds(cls, value: str | list[str], info: ValidationInfo) -> str | list[str]:
        if "reports" not in info.data:  # They are invalid, which is reported.
            return value
        # The runner alone writes comparisons, and judges them without being asked to.
        known = (*info.data["reports"], *(kind for kind in KINDS if kind != COMPARE))
        for kind in [value] if isinstance(value, str) else value:
            if kind not in known and (kind not in ("none", "reports") or isinstance(value, list)):
                raise ValueError(
                    f"no rule knows reports of kind {kind!r}{near(kind, [*known, 'none', 'reports'])}"
                )
        return value

    @model_validator(mode="after")
    def _declared_kinds_are_judged(self) -> "Preset":
        if self.gate != "reports" and (unused := self.reports.keys() - self.kinds):
            raise ValueError(f"gate must name the declared kind {min(unused)!r}, or be 'reports'")
        return self

    @model_validator(mode="after")
    def _placeholders_are_declared(self) -> "Preset":
        for name in self.params:
            if not _PARAM_TOKEN.fullmatch(f"{{{name}}}"):
                rule = "must consist of lower-case letters, digits and underscores"
                raise ValueError(f"parameter {name!r} {rule}")
        wanted = {name for name, param in self.params.items() if not param.unused}
        used = self._placeholders(_PARAM_TOKEN)
        if unmatched := wanted.symmetric_difference(used):
            name = min(unmatched, key=lambda name: (name in wanted, name))
            meant = near(name, self.params if name in used else used)
            raise ValueError(f"parameter {name!r} must be both declared and used in a step{meant}")
        if self.code == "installed" and any(param.type == "path" for param in self.params.values()):
            raise ValueError("a path parameter needs the request's tree, so code must be 'request'")
        if self.code == "request" and self.inputs:
            raise ValueError("inputs are for code 'installed'; with 'request' the whole tree is there")
        if self.code == "installed" and self.compare:
            raise ValueError("compare needs the request's tree, so code must be 'request'")
        if self.gated and not self.collect:
            raise ValueError(f"gate {self.gate!r} needs something to collect")
        for name in (*self.env, *self.pass_env, *filter(_SECRET.fullmatch, self.env_names)):
            if _NEVER_SET.fullmatch(name) or _SECRET.fullmatch(name):
                raise ValueError(f"{name} may not be set or passed to a job")
        return self

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the preset's definition, by which a result names what ran."""
        text = json.dumps(self.definition(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def definition(self) -> dict[str, Any]:
        """Return all fields. Newer fields without a value are left out: older clients compute the same digest."""
        later = {name for name in ("reports", "leaves", "compare") if not getattr(self, name)}
        return self.model_dump(by_alias=True, exclude=later)

    @property
    def gated(self) -> bool:
        """Return whether the gate judges the reports on the machine that measured them."""
        return self.gate != "none"

    @property
    def kinds(self) -> list[str]:
        """The kinds of report that the preset promises; empty if any kind is allowed."""
        if isinstance(self.gate, list):
            return self.gate
        return [self.gate] if self.gate in (*KINDS, *self.reports) else []

    @property
    def env_names(self) -> list[str]:
        """The names of the host's settings that the commands need."""
        return self._placeholders(_ENV_TOKEN)

    def _placeholders(self, token: re.Pattern[str]) -> list[str]:
        matches = (token.fullmatch(text) for step in self.steps for text in step.argv)
        return list(dict.fromkeys(match["name"] for match in matches if match))

    def read_params(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Turn ``k=v`` texts into checked values, without the defaults.

        Raises:
            PresetError: a text has no ``=``, or its value does not fit.
        """
        return {name: self._value(name, text, is_text=True) for name, text in texts.items()}

    def check_params(self, params: Mapping[str, object]) -> Checked:
        """Return every parameter's checked value, or its default.

        Raises:
            PresetError: a value does not fit, or one is missing.
        """
        values = {name: self._value(name, value) for name, value in params.items()}
        filled: dict[str, Value] = {}
        for name, param in self.params.items():
            value = values.get(name, param.default)
            if value is None:
                fix = Advice("Add ", advice.param(name), f" ({param.allowed}).")
                raise PresetError(f"{self.name} needs parameter {name}", code="missing_param", fix=fix)
            filled[name] = value
        return Checked(filled)

    def check_texts(self, texts: Mapping[str, str]) -> Checked:
        """Check values given as text, as ``check_params`` checks typed values."""
        return self.check_params(self.read_params(texts))

    def build_commands(self, params: Checked, env: Mapping[str, str]) -> list[list[str]]:
        """Return the argv lists to run, one per step.

        ``params`` are the result of ``check_params``; ``env`` has the host's settings for ``${ENV:NAME}``.

        Raises:
            PresetError: with code ``missing_env`` for a setting that the host lacks.
        """
        values = {f"{{{name}}}": param.argv(params[name]) for name, param in self.params.items()}
        for name in self.env_names:
            if not env.get(name):
                fix = f"On the runner, set {name} under `env` in the policy file."
                raise PresetError(f"{self.name} needs the setting {name}", code="missing_env", fix=fix)
            values[f"${{ENV:{name}}}"] = [env[name]]
        return [[word for token in step.argv for word in values.get(token, [token])] for step in self.steps]

    def _value(self, name: str, value: object, *, is_text: bool = False) -> Value:
        """Return a parameter's checked value; name the preset and the parameter in errors."""
        if (param := self.params.get(name)) is None:
            fix = did_you_mean(name, self.params) or f"It takes: {', '.join(self.params) or 'none'}."
            raise PresetError(f"{self.name} has no parameter {name!r}", code="unknown_param", fix=fix)
        try:
            return param.check(param.read(str(value)) if is_text else value)
        except PresetError as error:
            message = f"{self.name}: {name} {error.message}"
            raise PresetError(message, code=error.code, fix=error.fix) from error


def did_you_mean(word: str, known: Mapping[str, object]) -> str | None:
    """Return a sentence with the most similar known words, or None."""
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near else None


def split_params(texts: Sequence[str], known: Mapping[str, object]) -> dict[str, str]:
    """Split ``NAME=VALUE`` texts.

    Raises:
        PresetError: a text has no ``=``, or a name is given twice.
    """
    split: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            near = None if name in known else did_you_mean(name, known)
            fix = near or f"Parameters: {', '.join(known) or 'none'}."
            raise PresetError(f"parameter {text!r}: write it as NAME=VALUE", fix=fix, code="usage")
        if name in split:
            fix = f"Give one value; a sweep over several is {name}=VALUE,VALUE."
            raise PresetError(f"parameter {name} is given twice", fix=fix, code="usage")
        split[name] = value
    return split
