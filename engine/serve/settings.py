"""What the command line decides for the whole server."""

from dataclasses import dataclass, field

MB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The server's settings; every limit is a bound on what a stranger's request can cost.

    Attributes:
        models: names, folders or hub ids that may be asked for; the first is the default.
        cache: the cache spec of requests that name none.
        boundary: how many of the first and last layers of such caches stay raw.
        draft: ``auto``, ``none``, ``lookup``, ``dflash``, or the reference to a drafter.
        dtype: the type to compute in, None for the engine's choice.
        device: ``cpu`` or ``gpu``, None for MLX's own choice.
        host: the address to listen on.
        port: the port to listen on.
        api_key: what clients have to show; None for no key.
        origins: web origins that may call from a browser.
        max_queue: requests that may wait.
        max_active: requests that are decoded at the same time.
        max_tokens: the tokens of an answer whose request does not say.
        max_body: bytes of a request.
        body_seconds: how long a client may take to send a request.
        write_seconds: how long a client may take to read a piece of its answer.
        request_seconds: how long a request may take, waiting included.
        drain_seconds: how long running requests may go on after SIGTERM.
        prefill_chunk: prompt tokens to run at once, between the rounds of other requests.
        memory_budget: bytes that weights, caches and kept prefixes may take together; None for no limit.
        prefix_cache: bytes that kept prefixes may take; 0 keeps none.
        idle_seconds: after how long without requests a model is unloaded; 0 for never.
    """

    models: tuple[str, ...] = ("tiny",)
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
    max_tokens: int = 512
    max_body: int = 4 * MB
    body_seconds: float = 30.0
    write_seconds: float = 60.0
    request_seconds: float = 600.0
    drain_seconds: float = 60.0
    prefill_chunk: int = 64
    memory_budget: int | None = None
    prefix_cache: int = 256 * MB
    idle_seconds: float = 0.0
