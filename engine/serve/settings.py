"""The server's settings, from the command line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.dflash.kinds import KINDS
from engine.inject import NAME as PACKAGE

MB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The server's settings. Sizes are in bytes. Each limit bounds the cost of a client's request."""

    models: tuple[str, ...] = ("tiny-chat",)  # names, folders or hub ids that requests may name
    listed: tuple[str, ...] = ()  # more of them; whether they can be had is checked once a request names them
    model_id: str | None = None  # the name of the only model in requests; None for names of the models' own
    cache: str = "raw"  # the cache spec of requests that name none
    boundary: int = 0  # how many of the first and last layers of such caches stay raw
    draft: str = "auto"  # one of backend.DRAFTS, or the reference to a drafter
    recent_answers: int = 0  # tokens of earlier answers in which lookup drafts are searched too
    dtype: str | None = None  # the type to compute in; None for the engine's choice
    backend: str = "mlx"  # a key of engine.serve.main.BACKENDS
    device: str | None = None  # "cpu", "gpu", "mps" or "cuda"; None and "auto" for the backend's own choice
    host: str = "127.0.0.1"
    port: int = 1339
    api_key: str | None = field(default=None, repr=False)  # None if clients need none
    origins: tuple[str, ...] = ()  # web origins that may call from a browser
    max_queue: int = 64  # answers that may wait
    max_active: int = 8  # answers that are decoded at the same time
    max_tokens: int = 8192  # limit of an answer whose request names none
    max_body: int = 4 * MB
    body_seconds: float = 30.0  # time for a client to send a request
    write_seconds: float = 60.0  # time for a client to read a piece of its answer
    request_seconds: float = 600.0  # time for a request, including its wait
    drain_seconds: float = 60.0  # time for running requests after SIGTERM
    prefill_chunk: int = 64  # prompt tokens to run at once, between the rounds of other requests
    memory_budget: int | None = None  # for weights, caches and prefix cache together; None for no limit
    prefix_cache: int = 256 * MB  # maximum size of the prefix cache; 0 disables it
    prefix_store: Path | None = None  # folder in which prefixes are also stored
    prefix_store_bytes: int = 4096 * MB  # maximum size of its files
    token_file: Path | None = None  # where api_key stands, if a host program shares it with the server
    parent_pid: int | None = None  # the process with which the server ends
    print_ready: bool = (
        False  # say on standard output when requests are answered, instead of the address at the start
    )
    max_resident: int | None = None  # maximum number of loaded models; None for no limit
    context: int | None = None  # maximum tokens of prompt and answer together; None for each model's own
    block_size: int | None = None  # the most rows of a DFlash block; None for the drafter's own
    idle_seconds: float = 0.0  # a model without requests for this time is unloaded; 0 for never


def drafter_of(draft: str) -> Any:
    """Return the drafter argument for ``engine.models.load``."""
    if draft in KINDS:
        return draft if KINDS[draft].within else None
    return {"auto": None, PACKAGE: None, "none": False, "lookup": False}.get(draft, draft)
