"""Request bodies of OpenAI's API, with a bound on every field. ``engine.serve.fields`` judges all other fields."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from bridge.common.errors import UsageError
from bridge.common.validation import predicate
from bridge.reports import cache_spec
from engine.serve import fields
from engine.serve.backend import DRAFTS
from engine.serve.errors import ApiError
from engine.serve.formats.schemas import WrittenFloat

MOST_ANSWERS = 8
MOST_TOOLS = 1024
MOST_STOPS = 64
MOST_TOKENS = 1 << 20
BIGGEST = 1 << 63

# Numbers that a double may not hold exactly. Pydantic would round such a number, and the schema would then
# have another one.
MANY_DIGITS = re.compile(rb"\d[\d.]{15}|\d[eE][+-]?\d{3}")
# Pydantic's names for the types of a field that accepts several types.
TYPE = re.compile(r"^(str|int|float|bool)$|[\[-]")
# Fields that only chat requests have, around a function and around a schema.
NESTING = ("function", "json_schema")

AnyBody = TypeVar("AnyBody", bound="Body")
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class Loose(BaseModel):
    """An object that accepts unknown fields. Known fields must have their own type."""

    model_config = ConfigDict(extra="allow", strict=True)


class Body(Loose):
    """A request's body."""

    elsewhere: ClassVar[tuple[str, ...]] = ()  # fields that have an effect on another route alone
    _ignored: list[str] = PrivateAttr(default_factory=list)

    @property
    def ignored(self) -> list[str]:
        """The names of the request's fields that are unknown, and so have no effect."""
        return self._ignored


class StreamOptions(Loose):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Function(Loose):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.-]+$")
    description: str | None = Field(None, max_length=100_000)
    parameters: dict[str, Any] | None = None


class Tool(Loose):
    """A tool. Only functions are supported."""

    type: str = Field(max_length=64)
    function: Function | None = None


class Schema(Loose):
    """A JSON schema with its name."""

    name: str | None = Field(None, max_length=64)
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")


class ResponseFormat(Loose):
    """The required format of an answer."""

    type: str = Field(max_length=64)
    json_schema: Schema | None = None


class Message(Loose):
    """A turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(None, max_length=256)
    tool_calls: list[dict[str, Any]] | None = Field(None, max_length=128)
    tool_call_id: str | None = Field(None, max_length=256)
    reasoning_content: str | None = None
    reasoning: Any = None


class Sampled(Body):
    """The common fields of all requests for answers."""

    model: str | None = Field(None, max_length=256)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    temperature: Real | None = Field(None, ge=0, le=2)
    top_p: Real | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=MOST_TOKENS)
    min_p: Real | None = Field(None, ge=0, le=1)
    n: int | None = Field(None, ge=1, le=MOST_ANSWERS)
    seed: int | None = Field(None, ge=-BIGGEST, lt=BIGGEST)
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    presence_penalty: Real | None = Field(None, ge=-2, le=2)
    frequency_penalty: Real | None = Field(None, ge=-2, le=2)
    repetition_penalty: Real | None = Field(None, ge=0.01, le=10)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    response_format: ResponseFormat | None = None
    x_kakeya: Any = None

    @property
    def live(self) -> bool:
        """Whether each event of the stream contains the usage so far."""
        return bool(self.stream and self.stream_options and self.stream_options.continuous_usage_stats)


class ChatRequest(Sampled):
    """``POST /v1/chat/completions``."""

    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=32)
    reasoning_effort: str | None = Field(None, max_length=32)

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """Arguments for the chat template: whether to think, if an effort is given, and the request's own arguments."""
        effort = self.reasoning_effort
        kwargs: dict[str, Any] = {} if effort is None else {"enable_thinking": effort != "none"}
        if effort not in (None, "none"):
            kwargs["reasoning_effort"] = effort
        return kwargs | (self.chat_template_kwargs or {})


class CompletionRequest(Sampled):
    """``POST /v1/completions``."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_ANSWERS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=MOST_ANSWERS)]
    )
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class Overrides(BaseModel):
    """A request's ``x_kakeya``. Unknown names are refused, because ignoring an option silently would mislead."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cache: str | None = Field(None, max_length=64)
    draft: str | None = Field(None, max_length=64)
    boundary: int | None = Field(None, ge=0, le=512)
    prefix: bool | None = None
    token_ids: bool | None = None


def parse(kind: type[AnyBody], body: bytes, also: Sequence[str] = ()) -> AnyBody:
    """Parse a request, which may have the fields ``also`` too.

    Raises:
        ApiError: 400 for a value or field that cannot be applied, 422 for an unknown option.
    """
    try:
        request = kind.model_validate_json(body)
        if MANY_DIGITS.search(body) is not None:
            request = kind.model_validate(json.loads(body, parse_float=WrittenFloat))
    except ValidationError as error:
        raise _refusal(error, 400) from error
    except ValueError as error:
        raise ApiError(400, "The body has a number with too many digits.", code="invalid_json") from error
    extra, own = request.model_extra or {}, [name for name in fields.LIMITS if name in kind.model_fields]
    if own and all(getattr(request, name) is None for name in own):  # the limit may have another API's name
        named = (extra.get(name) for name in fields.LIMITS)
        limits = (each for each in named if type(each) is int and 1 <= each <= MOST_TOKENS)
        setattr(request, own[0], next(limits, None))
    declared = {*kind.model_fields, *kind.elsewhere, *also}
    request.ignored.extend(fields.check(declared, {**request.__dict__, **extra}))
    return request


def translated(kind: type[AnyBody], request: Body, body: dict[str, Any], names: Mapping[str, str]) -> AnyBody:
    """Check a body that was translated from a request of another API; ApiError 400 for an invalid value.

    The error has the request's own names of fields, from ``names``. It does not say which entry of a list it means,
    because a translation may join and split entries.
    """
    try:
        chat = kind.model_validate(body)
    except ValidationError as error:
        raise _refusal(error, 400, names=names) from error
    chat.ignored.extend(request.ignored)
    return chat


def overrides(values: Any) -> Overrides:
    """Return a request's ``x_kakeya``; ApiError 422 if it is invalid."""
    if values is None:
        return Overrides()
    try:
        parsed = Overrides.model_validate(values)
    except ValidationError as error:
        raise _refusal(error, 422, "x_kakeya") from error
    if parsed.draft is not None and parsed.draft not in DRAFTS:
        message = f"There is no draft {parsed.draft!r}. Choose one of {', '.join(DRAFTS)}."
        raise ApiError(422, message, param="x_kakeya.draft", code="invalid_override")
    if parsed.cache is not None:
        try:
            spec = cache_spec.parse(parsed.cache)
        except UsageError as error:
            message = f"There is no cache {parsed.cache!r}. Choose one of: {cache_spec.help_text()}."
            raise ApiError(422, message, param="x_kakeya.cache", code="invalid_override") from error
        return parsed.model_copy(update={"cache": spec.text})
    return parsed


def _refusal(
    error: ValidationError, status: int, within: str = "", names: Mapping[str, str] | None = None
) -> ApiError:
    """Return the first validation error in the form of OpenAI's errors."""
    errors = error.errors(include_url=False)
    # A field that accepts several types has an error for each. An error about the value is better than "not a string".
    first = next((each for each in errors if not each["type"].endswith("_type")), errors[0])
    first = first if first["loc"][:1] == errors[0]["loc"][:1] else errors[0]
    parts = [part for part in (within, *map(str, first["loc"])) if part and not TYPE.search(part)]
    if names is not None and parts:
        inner = (part for part in parts[1:] if not part.isdecimal() and part not in NESTING)
        parts = [names.get(parts[0], parts[0]), *inner]
    param = ".".join(parts) or None
    if first["type"] == "json_invalid":
        return ApiError(400, f"The body is not JSON in UTF-8: {first['msg'][:300]}.", code="invalid_json")
    code = "missing" if first["type"] == "missing" else "invalid_override" if within else "invalid_value"
    return ApiError(status, f"{param or 'The body'}: {predicate(first)[:300]}.", param=param, code=code)
