"""The thread that uses MLX."""

from collections.abc import Callable

from engine.serve.metrics import Metrics
from engine.serve.scheduler.kit import MlxKit
from engine.serve.scheduler.scheduler import Scheduler
from engine.serve.settings import Settings
from engine.serve.turns.thread import TurnsThread


class EngineThread(TurnsThread):
    """The ``engine.serve.backend.Backend`` over MLX. Any thread may call the public methods."""

    scheduler = Scheduler

    def __init__(self, settings: Settings, metrics: Metrics, wake: Callable[[], None] = lambda: None) -> None:
        super().__init__(MlxKit(settings, metrics), settings, metrics, wake)
