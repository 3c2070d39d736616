"""The server's settings, from the command line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.inject import NAME as PACKAGE

MB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The server's settings. Each limit bounds the cost of a client's request.

    Attributes:
        models: names, folders or hub ids that may be asked for.
        cache: the cache spec of requests that name none.
        boundary: how many of the first and last layers of such caches stay raw.
        draft: ``auto``, ``none``, ``lookup``, ``dflash``, or the reference to a drafter.
        dtype: the type to compute in, None for the engine's choice.
        device: ``cpu`` or ``gpu``, None for MLX's own choice.
        host: the address to listen on.
        port: the port to listen on.
        api_key: the key that clients must send; None for no key.
        origins: web origins that may call from a browser.
        max_queue: maximum number of waiting answers.
        max_active: maximum number of answers decoded at the same time.
        max_tokens: default token limit of an answer.
        max_body: maximum size of a request in bytes.
        body_seconds: how long a client may take to send a request.
        write_seconds: how long a client may take to read a piece of its answer.
        request_seconds: how long a request may take, waiting included.
        drain_seconds: how long running requests may go on after SIGTERM.
        prefill_chunk: prompt tokens to run at once, between the rounds of other requests.
        memory_budget: maximum bytes of weights, caches and prefix cache together; None for no limit.
        prefix_cache: maximum bytes of the prefix cache; 0 disables it.
        prefix_store: folder in which prefixes are also stored, or None.
        prefix_store_bytes: maximum size of its files in bytes.
        idle_seconds: after how long without requests a model is unloaded; 0 for never.
    """

    models: tuple[str, ...] = ("tiny-chat",)
    cache: str = "raw"
    boundary: int = 0
    draft: str = "auto"
    dtype: str | None = None
    device: str | None = None
    host: str = "127.0.0.1"
    port: int = 1339
    api_key: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    max_queue: int = 64
    max_active: int = 8
    max_tokens: int = 8192
    max_body: int = 4 * MB
    body_seconds: float = 30.0
    write_seconds: float = 60.0
    request_seconds: float = 600.0
    drain_seconds: float = 60.0
    prefill_chunk: int = 64
    memory_budget: int | None = None
    prefix_cache: int = 256 * MB
    prefix_store: Path | None = None
    prefix_store_bytes: int = 4096 * MB
    idle_seconds: float = 0.0


def drafter_of(draft: str) -> Any:
    """Return the drafter argument for :func:``engine.models.load``."""
    return {"auto": None, "dflash": None, PACKAGE: None, "none": False, "lookup": False}.get(draft, draft)
