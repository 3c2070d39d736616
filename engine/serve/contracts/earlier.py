"""The contract of the clients of two earlier programs, ``kakeya-sidecar-mlx`` and ``kakeya-sidecar``.

Under these names the server understands ``x_kakeya_override`` and shows the earlier fields beside its own. Errors,
streams and stop strings stay this server's: the earlier ones told errors as text and left the stop string in it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.common.validation import predicate
from engine.serve import listing
from engine.serve.backend import Model, Options, Start
from engine.serve.channels import Channel
from engine.serve.contracts.entries import channels, default_channel, described, drafter, parts_of
from engine.serve.errors import ApiError
from engine.serve.protocol import Sampled, overrides
from engine.serve.server import Chosen, Server
from engine.serve.settings import Settings

OVERRIDE = "x_kakeya_override"


class Override(BaseModel):
    """A request's ``x_kakeya_override``: the differences from its model's channel."""

    model_config = ConfigDict(extra="forbid", strict=True)

    variant: Literal["d4", "e8"] | None = None
    q_range: int | None = Field(None, ge=1, le=9999)
    boundary: int | None = Field(None, ge=0, le=512)


@dataclass(frozen=True)
class Earlier:
    """An earlier program and its options."""

    variant: str  # B1 with torch, B2 with MLX
    owner: str  # of its models
    dflash: bool = False  # whether models that have a drafter use it
    own_cache: bool = False  # whether requests that name no channel get the cache of the command line
    device: str = "cpu"  # cpu, mps or cuda

    def models(self, server: Server) -> dict[str, Any]:
        """Return the answer to ``GET /v1/models``: an entry for each channel."""
        entries = [entry for name in server.names for entry in self._entries(server, name)]
        return {"object": "list", "data": entries}

    def model(self, server: Server, name: str) -> dict[str, Any]:
        """Return the entry of a model or of one of its channels; ApiError 404 if there is none."""
        entry = listing.model(server, name)
        plain = name in server.names
        channel = self.default(server, name) if plain else server.channel(name)
        return self._shown(server, entry, channel.short if channel else name, channel)

    def health(self, server: Server) -> dict[str, Any]:
        """Return the answer to ``GET /health``."""
        state = listing.health(server)
        return {"ok": state["reason"] is None, "milestone": "M4", **self._about(server), **state}

    def stats(self, server: Server) -> dict[str, Any]:
        """Return the answer to ``GET /v1/kakeya/stats``."""
        loaded = [name for name, reference in server.names.items() if reference in server.engine.models]
        theirs = {
            "device": self.device,
            "resident_models": loaded,
            "max_resident": server.settings.max_resident,
        }
        return {**self._about(server), **theirs, **listing.stats(server)}

    def translated(self, server: Server, request: Sampled) -> Sampled:
        """Return a request with this server's own fields; ApiError 422 for an override that is not available."""
        own, name = overrides(request.x_kakeya), request.model
        changed: dict[str, Any] = {}
        plain = name in server.names
        if name is None or not (plain or server.channel(name)):
            return request  # there is no such model
        channel = self.default(server, name) if plain else server.channel(name)
        override = _override((request.model_extra or {}).get(OVERRIDE))
        if override not in (None, Override()):
            assert override is not None  # noqa: S101 - for the type checker
            if own.cache is not None or own.boundary is not None:
                raise _refused("excludes a cache or boundary in x_kakeya")
            changed = _applied(override, channel)
        elif plain and channel is not None and own.cache is None and not self.own_cache:
            changed = {"cache": channel.cache}
        if own.draft is None and server.settings.draft in ("auto", "lookup"):
            drafts = self.dflash and drafter(server, channel.short if channel else name) is not None
            changed["draft"] = "dflash" if drafts else "auto"
        return request.model_copy(update={"x_kakeya": own.model_dump(exclude_none=True) | changed})

    def report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return an answer's ``x_kakeya`` with the earlier fields."""
        drafters = str(report.get("draft", "")).split("+")
        cache = re.fullmatch(r"(.+?)(?:-b(\d+))?", str(report.get("cache", "")))
        spec, boundary = cache.groups() if cache else ("", None)
        return {
            **report,
            **parts_of(Channel("", spec, int(boundary or 0))),
            "dflash_used": any(each.startswith("dflash") for each in drafters),
            "injection_strategy": report.get("injection"),
            "acceptance_length_mean": report.get("accept_length"),
        }

    def default(self, server: Server, name: str) -> Channel | None:
        """Return the channel of requests that only name a model; None if it has no channel of the earlier program."""
        return default_channel(server, name, mlx=self.variant == "B2")

    def _about(self, server: Server) -> dict[str, Any]:
        return {
            "engine_loaded": bool(server.engine.models),
            "variant": self.variant,
            "dflash_enabled": self.dflash or server.settings.draft not in ("auto", "lookup", "none"),
        }

    def _entries(self, server: Server, name: str) -> Iterator[dict[str, Any]]:
        entry, offered = listing.entry(server, name), channels(server, name)
        for channel in offered:
            yield self._shown(server, {**entry, "id": str(channel)}, name, channel)
        if not offered:
            yield self._shown(server, entry, name, None)

    def _shown(
        self, server: Server, entry: dict[str, Any], name: str, channel: Channel | None
    ) -> dict[str, Any]:
        """Return an entry with the earlier fields of a model and a channel; without a channel, most are null."""
        own, default = entry["x_kakeya"], self.default(server, name)
        if default is not None:
            own = own | {"default_channel": str(default)}
        if channel is not None:
            own = own | {"cache": channel.cache}
        theirs = {**described(server, name, channel), "is_default": channel == default}
        return {**entry, "owned_by": self.owner, "x_kakeya": own | theirs}


class EarlierServer(Server):
    """The server under an earlier program's name."""

    fields = (OVERRIDE,)

    def __init__(self, settings: Settings, start: Start, earlier: Earlier) -> None:
        super().__init__(settings, start)
        self.earlier = earlier

    def choose(self, request: Sampled) -> Chosen:
        """Return the model and cache for a request; ApiError 404 or 422 if they do not exist."""
        with _in_their_words(request):
            return super().choose(self.earlier.translated(self, request))

    def options(
        self, request: Sampled, chosen: Chosen, resident: Model, ids: list[int], most: int | None
    ) -> Options:
        """Return the options for an answer of ``most`` tokens to a prompt; ApiError 400 if the model cannot read it."""
        with _in_their_words(request):
            return super().options(request, chosen, resident, ids, most)

    def reported(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return an answer's ``x_kakeya`` with the earlier fields."""
        return self.earlier.report(report)


@contextmanager
def _in_their_words(request: Sampled) -> Iterator[None]:
    """Make an error about an override name the request's own field."""
    try:
        yield
    except ApiError as error:
        if (request.model_extra or {}).get(OVERRIDE) is not None and error.param is not None:
            error.param = error.param.replace("x_kakeya.", f"{OVERRIDE}.")
        raise


def _override(value: Any) -> Override | None:
    if value is None:
        return None
    try:
        return Override.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _refused(predicate(first)[:300], *map(str, first["loc"])) from error


def _applied(override: Override, channel: Channel | None) -> dict[str, Any]:
    """Return the cache and boundary of an override of a channel."""
    base = parts_of(channel)
    variant = override.variant or base["variant"]
    q_range = override.q_range if override.q_range is not None else base["q_range"]
    for name, value in (("variant", variant), ("q_range", q_range)):
        if value is None:
            raise _refused("is missing, and the model's channel has none", name)
    return {"cache": f"{variant}@q{q_range}", "boundary": override.boundary}


def _refused(reason: str, *path: str) -> ApiError:
    param = ".".join((OVERRIDE, *path))
    return ApiError(422, f"{param}: {reason}.", param=param, code="invalid_override")
