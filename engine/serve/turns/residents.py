"""Loads models, and unloads them if they are idle or broken, or if their memory is needed."""

import logging
import time
from collections.abc import Collection

from engine.serve.errors import ApiError
from engine.serve.settings import Settings
from engine.serve.turns.kit import Kit, LoadedModel

log = logging.getLogger("engine.serve")
BROKEN_AFTER = 3  # a model may be broken after bugs ended this many consecutive answers
MENDED_AFTER = 30.0  # seconds until a broken model may be loaded again


class Residents:
    """The loaded models. Only the engine's thread changes them; others may read."""

    def __init__(self, settings: Settings, kit: Kit) -> None:
        self.settings, self._kit = settings, kit
        self.by_name: dict[str, LoadedModel] = {}
        self.loading: str | None = None  # the name of the model that is being loaded
        self.unloaded = {"idle": 0, "pressure": 0, "broken": 0}  # number of unloaded models by reason
        self._broken: dict[str, tuple[float, str]] = {}  # when its refusal ends, and the last error's id
        self._failures: dict[str, int] = {}
        self.unloadable: dict[str, str] = {}  # models that could not be loaded at the last attempt, and why

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(each.nbytes for each in list(self.by_name.values()))

    @property
    def broken_models(self) -> list[str]:
        """Models that are currently refused, or could not be loaded at the last attempt."""
        return [*self._refused, *(name for name in list(self.unloadable) if name not in self._refused)]

    @property
    def _refused(self) -> list[str]:
        return [name for name, (until, _) in list(self._broken.items()) if time.monotonic() < until]

    def get(self, name: str) -> LoadedModel:
        """Return a model, loaded if needed; ApiError 500 if it failed too often, BadInput if it cannot be loaded."""
        until, error_id = self._broken.get(name, (0.0, ""))
        if time.monotonic() < until:
            message = (
                f"The model {name} failed {BROKEN_AFTER} times in a row and is unloaded; the log has {error_id}. "
                f"Try again in {MENDED_AFTER:.0f} s."
            )
            raise ApiError(500, message, param="model", code="model_broken")
        if name not in self.by_name:
            self.loading = name
            began = time.monotonic()
            log.info("loading %s", name)
            try:
                resident = self._kit.load(name)
                resident.limit(self.settings.context, self.settings.block_size)
                self.by_name[name] = resident
            except Exception as error:
                self.unloadable[name] = " ".join(str(error).split())[:300]
                raise
            finally:
                self.loading = None
            self.unloadable.pop(name, None)
            log.info("loaded %s in %.1f s", name, time.monotonic() - began)
        resident = self.by_name[name]
        resident.used = time.monotonic()
        return resident

    def expected(self, name: str) -> int:
        """Return the memory for loading a model, in bytes; 0 if it is loaded."""
        if name in self.by_name:
            return 0
        self.loading = name  # unknown size: it may have to be downloaded first
        try:
            return self._kit.expected(name)
        finally:
            self.loading = None

    def unload_idle(self, busy: Collection[str]) -> None:
        """Unload models without requests for some time, except busy ones."""
        most = self.settings.idle_seconds
        for name, resident in list(self.by_name.items()):
            if most and name not in busy and time.monotonic() - resident.used >= most:
                self._unload(name, "idle")

    def make_room(self, needed: int, busy: Collection[str]) -> int:
        """Unload idle models, the least recently used first, until ``needed`` bytes are free. Returns how many are."""
        freed = 0
        for name in sorted(self.by_name, key=lambda name: self.by_name[name].used):
            if freed >= needed:
                break
            if name not in busy:
                freed += self.by_name[name].nbytes
                self._unload(name, "pressure")
        return freed

    def make_place(self, name: str, busy: Collection[str]) -> bool:
        """Return whether the limit on loaded models has a place for one more, for which idle ones are unloaded."""
        most = self.settings.max_resident
        if most is None or name in self.by_name:
            return True
        idle = sorted(
            (each for each in self.by_name if each not in busy), key=lambda each: self.by_name[each].used
        )
        excess = max(0, len(self.by_name) + 1 - most)
        if excess > len(idle):
            return False
        for each in idle[:excess]:
            self._unload(each, "pressure")
        return True

    def idle_bytes(self, busy: Collection[str]) -> int:
        """Return the number of bytes that unloading all idle models would free."""
        return sum(each.nbytes for name, each in self.by_name.items() if name not in busy)

    def touch(self, name: str) -> None:
        """Record that a request needed a model."""
        if name in self.by_name:
            self.by_name[name].used = time.monotonic()

    def succeeded(self, name: str) -> None:
        """Record that a model completed an answer."""
        self._failures.pop(name, None)

    def failed(self, name: str, error_id: str) -> None:
        """Record that a bug ended an answer of a model.

        A model is marked as broken after several consecutive failures, but only if it cannot run a single token
        either. Otherwise the cause may be a repeated request.
        """
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] < BROKEN_AFTER:
            return
        del self._failures[name]
        if self._runs(name):
            return
        self._broken[name] = time.monotonic() + MENDED_AFTER, error_id
        message = "%s failed %d times in a row (last: %s); it is refused for now"
        log.error(message, name, BROKEN_AFTER, error_id)

    def _runs(self, name: str) -> bool:
        if name not in self.by_name:
            return True
        try:
            return self._kit.runs(self.by_name[name])
        except BaseException:  # a panic in a library is not an Exception
            log.exception("%s cannot run a token", name)
            return False

    def unload_broken(self, busy: Collection[str]) -> None:
        """Unload models that are marked as broken. They are loaded again when they may be used again."""
        for name in self._refused:
            if name in self.by_name and name not in busy:
                self._unload(name, "broken")

    def _unload(self, name: str, reason: str) -> None:
        self.by_name.pop(name).release()
        self.unloaded[reason] += 1
        log.info("unloaded %s (%s)", name, reason)
        self._kit.unloaded(name)
