"""The state that all routes share: the engine's thread and the settings; and how requests become answers."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from engine.errors import BadInput, EngineError
from engine.models import catalogue
from engine.models.catalogue import RAW, least_boundary
from engine.serve.backend import DRAFTS, Failed, Job, Model, Options, Piece, Start
from engine.serve.channels import Channel, names_of
from engine.serve.errors import ApiError, gone, late, too_long
from engine.serve.metrics import Metrics
from engine.serve.protocol import Overrides, Sampled, overrides
from engine.serve.settings import Settings

SEEDS = (1 << 63) - 1
DEFAULT_TEMPERATURE = 1.0  # OpenAI's
OVERDUE = 5.0  # seconds after a request's deadline by which the engine's thread should have ended it


@dataclass(frozen=True)
class Chosen:
    """The choice of a request's ``model`` and ``x_kakeya``."""

    requested: str  # the requested name, which the answer repeats
    reference: str  # the model to load
    cache: str  # the cache spec
    boundary: int  # layers left raw
    overrides: Overrides


class Server:
    """The server's state; everything here runs in the event loop. ``start`` creates the backend."""

    fields: ClassVar[tuple[str, ...]] = ()  # request fields of another program that ``choose`` reads

    def __init__(self, settings: Settings, start: Start) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.outbox = Outbox()
        self.engine = start(settings, self.metrics, self.outbox.wake)
        self.started = time.time()
        engine, watch = self.engine, self.metrics.watch
        watch("kakeya_active", "Answers that are being made.", lambda: len(engine.active))
        watch("kakeya_waiting", "Answers that are queued.", lambda: engine.waiting)
        watch("kakeya_cache_bytes", "Caches of answers.", lambda: engine.memory().caches)
        watch("kakeya_prefix_bytes", "Kept prefixes.", lambda: engine.memory().prefixes)
        self.names = names_of((*settings.models, *settings.listed))
        if settings.model_id is not None:
            self.names = dict.fromkeys([settings.model_id], *self.names.values())

    def choose(self, request: Sampled) -> Chosen:
        """Return the model and cache for a request; ApiError 404 or 422 if they do not exist."""
        wanted, own = overrides(request.x_kakeya), f"This server has: {', '.join(self.names)}."
        if request.model is None:
            raise ApiError(400, f"The request names no model. {own}", param="model", code="missing")
        plain = request.model in self.names
        named = Channel(request.model, self.settings.cache, self.settings.boundary)
        channel = named if plain else self.channel(request.model)
        if channel is None:
            message = f"There is no model or channel {request.model[:100]!r} here. {own}"
            raise ApiError(404, message, param="model", code="model_not_found")
        reference = self.names[channel.short]
        cache = channel.cache if wanted.cache is None else wanted.cache
        least, boundary = least_boundary(reference, cache), wanted.boundary
        if boundary is None:
            boundary = max(channel.boundary, least) if plain else channel.boundary
        if boundary < least:
            known = catalogue.entry(reference)
            reason = known.why_boundary if known else ""
            message = f"{reason}. Ask for {Channel(channel.short, cache, least)}."
            if wanted.boundary is None and wanted.cache is None:
                raise ApiError(404, message, param="model", code="model_not_found")
            raise ApiError(422, message, param="x_kakeya.boundary", code="invalid_override")
        return Chosen(request.model, reference, cache, boundary, wanted)

    def reported(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return what an answer's ``x_kakeya`` says."""
        return report

    def channel(self, name: str) -> Channel | None:
        """Parse a channel's name; None if it is not a channel of one of the models."""
        try:
            channel = Channel.parse(name)
        except BadInput:
            return None
        return channel if channel.short in self.names else None

    async def resident(self, chosen: Chosen) -> Model:
        """Return the model, loading it if needed."""
        try:
            async with asyncio.timeout(self.settings.request_seconds):
                model: Model = await asyncio.wrap_future(self.engine.load(chosen.reference))
                return model
        except (TimeoutError, EngineError) as error:
            message = f"There was no room for the model {chosen.requested} in time. Try again later."
            if isinstance(error, EngineError):
                message = f"The model {chosen.requested} cannot be loaded: {error.message}."
            raise ApiError(503, message, param="model", code="model_unavailable") from error

    def options(
        self, request: Sampled, chosen: Chosen, resident: Model, ids: list[int], most: int | None
    ) -> Options:
        """Return the options for an answer of ``most`` tokens to a prompt; ApiError 400 if the model cannot read it."""
        resident.check(ids, "messages")
        room = resident.context - len(ids)
        if room < 1:
            raise too_long(f"{len(ids)} tokens > {resident.context} maximum", resident.context)
        if chosen.cache != RAW and 0 < resident.layers <= 2 * chosen.boundary:
            message = (
                f"A boundary of {chosen.boundary} leaves none of the {resident.layers} layers to {chosen.cache}. "
                "Ask for a smaller boundary, or for the cache raw."
            )
            raise ApiError(422, message, param="x_kakeya.boundary", code="invalid_override")
        draft = self.settings.draft

        def sampling(name: str, default: float) -> float:
            return _or(getattr(request, name), resident.sampling.get(name, default))

        return Options(
            max_tokens=min(room, most or self.settings.max_tokens),
            temperature=sampling("temperature", DEFAULT_TEMPERATURE),
            top_k=max(0, int(sampling("top_k", 0))),
            top_p=max(sampling("top_p", 1.0), 1e-9),
            min_p=sampling("min_p", 0.0),
            seed=None if request.seed is None else request.seed & SEEDS,
            stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
            cache=chosen.cache,
            boundary=chosen.boundary,
            draft=chosen.overrides.draft or (draft if draft in DRAFTS else "auto"),
            prefix=chosen.overrides.prefix is not False,
            token_ids=chosen.overrides.token_ids is True,
            bias=_bias(request.logit_bias, resident.vocabulary),
            presence=request.presence_penalty or 0.0,
            frequency=request.frequency_penalty or 0.0,
            repetition=sampling("repetition_penalty", 1.0),
            live=request.live,
        )


class Outbox:
    """Events on their way from the backend's thread to the queues of the event loop, with one wake-up for all of them.

    Waking the loop takes a system call and a change of threads, which cost more than an event. So the backend wakes the
    loop after it has added all events that are ready. The loop is the one in which ``open`` was called.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False

    def open(self) -> None:
        """From now on, deliver events to the running loop."""
        self._loop = asyncio.get_running_loop()

    def put(self, queue: "asyncio.Queue[Any]", event: Any) -> None:
        """Add an event for a queue, in the backend's thread. It arrives after the next ``wake``."""
        self._events.append((queue, event))

    def wake(self) -> None:
        """Let the event loop deliver the events, unless that is scheduled. Call this in the backend's thread."""
        if not self._events or self._woken or self._loop is None:
            return
        self._woken = True  # before the call, because the loop may deliver before the call returns
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed, so nobody reads events any more
            self._woken = False
            self._events.clear()

    def _deliver(self) -> None:
        self._woken = False  # first, because events that are added from now on need another wake-up
        while self._events:
            queue, event = self._events.popleft()
            queue.put_nowait(event)


class PendingAnswer:
    """The pending answers to each prompt of a request; ApiError 429 if the queue has no room for them."""

    def __init__(
        self, server: Server, chosen: Chosen, prompts: list[list[int]], options: Options, request: Sampled
    ) -> None:
        self.model, self._reported = chosen.requested, server.reported
        self._about = {"sampling": sampling_of(options), "ignored": request.ignored}
        self.prompt_tokens = sum(map(len, prompts))
        self._events: asyncio.Queue[Piece | Failed] = asyncio.Queue()
        self._first: Piece | Failed | None = None
        # A function to await before pieces() waits for more; callers that hold back events set it.
        self.waits: Callable[[], Awaitable[None]] | None = None
        self._deadline = time.monotonic() + server.settings.request_seconds
        emit, self.jobs = partial(server.outbox.put, self._events), []
        for i, ids in enumerate(ids for ids in prompts for _ in range(request.n or 1)):
            seed = None if options.seed is None else (options.seed + i) & SEEDS
            own = replace(options, seed=seed)
            self.jobs.append(Job(i, chosen.reference, ids, own, emit, self._deadline))
        self._left = len(self.jobs)
        server.outbox.open()
        server.engine.submit(self.jobs)

    async def settled(self, seconds: float) -> None:
        """Wait briefly for the first event; raises the error of a request that fails at once."""
        try:
            self._first = await asyncio.wait_for(self._next(), seconds)
        except TimeoutError:
            return
        if isinstance(self._first, Failed):
            self.cancel()
            raise self._first.error

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the pieces of all answers as they come; raise the error of an answer that fails."""
        while self._left:
            if self._first is None and self._events.empty() and self.waits is not None:
                await self.waits()
            event = self._first if self._first is not None else await self._next()
            self._first = None
            if isinstance(event, Failed):
                self.cancel()
                raise event.error
            self._left -= event.finish_reason is not None
            yield replace(event, report=self._reported(event.report | self._about)) if event.report else event

    async def _next(self) -> Piece | Failed:
        """Wait for the next event. The request ends in time even if the engine's thread is stuck."""
        try:
            async with asyncio.timeout(max(0.0, self._deadline + OVERDUE - time.monotonic())):
                return await self._events.get()
        except TimeoutError:
            return Failed(0, late())

    def cancel(self) -> None:
        """End all answers within one round; has no effect on complete ones. Call it only in the event loop."""
        for job in self.jobs:
            job.cancel()
        self._events.put_nowait(Failed(0, gone()))


def sampling_of(options: Options) -> dict[str, float]:
    """Return how an answer is sampled, in the names of requests."""
    return {
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "repetition_penalty": options.repetition,
    }


def _bias(biases: dict[str, float] | None, vocabulary: int) -> dict[int, float]:
    for name in biases or ():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocabulary):  # noqa: PLR2004
            message = f"{name[:20]!r} is no token of this model, which has {vocabulary}."
            raise ApiError(400, message, param="logit_bias", code="invalid_value")
    return {int(name): by for name, by in (biases or {}).items()}


def _or(value: Any, default: float) -> float:
    return default if value is None else float(value)
