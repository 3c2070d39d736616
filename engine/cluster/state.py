"""What the supervisor knows of each rank, and how long each phase may last without progress."""

import time
from dataclasses import dataclass, field
from typing import Any

from engine.cluster.hosts import Cluster

# The phases of a rank in their order, and what a message says that the rank was doing.
DOING = {
    "start": "starting", "import": "loading MLX", "connect": "connecting", "load": "loading the model",
    "prefill": "reading the prompt", "decode": "decoding", "end": "ending",
}  # fmt: skip
_ORDER = list(DOING)


@dataclass(frozen=True)
class Clocks:
    """How long nothing may happen, in seconds."""

    token: float = 20.0  # without another token
    load: float = 600.0  # while the model is loaded, and while the prompt is read
    start: float = 25.0  # until each rank has started, and until all ranks are connected
    silence: float = 15.0  # without a sign of life of a rank: it is stopped, asleep or cut off
    end: float = 10.0  # from the first rank's end record to the last one's

    @classmethod
    def of(cls, token: float, load: float) -> "Clocks":
        """Return the clocks for these two limits; a short one shortens the others."""
        usual = cls()
        silence, end = min(usual.silence, token, load), min(usual.end, token)
        return cls(token, load, min(usual.start, load), silence, end)

    def limit(self, phase: str) -> tuple[float, str]:
        """Return how long a phase may last without progress, and what was missing then."""
        if phase in ("load", "prefill"):
            return self.load, "progress"
        if phase == "decode":
            return self.token, "token"
        return (self.end, "end record") if phase == "end" else (self.start, "progress")


@dataclass
class RankState:
    """What a rank has reported."""

    phase: str = "start"
    count: int = 0
    heard: float = field(default_factory=time.monotonic)
    advanced: float = field(default_factory=time.monotonic)
    has_started: bool = False
    end: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None

    def take(self, message: dict[str, Any]) -> None:
        """Note a message."""
        event, self.heard, self.has_started = message["event"], time.monotonic(), True
        if event == "end":
            self.end = self.end or message
        elif event == "failed":
            self.failed = self.failed or message
        elif event in ("alive", "text"):
            at = message.get("phase", "decode"), message["count"]
            if at != (self.phase, self.count):
                (self.phase, self.count), self.advanced = at, self.heard

    @property
    def is_silent_by_nature(self) -> bool:
        """Whether it cannot report now: it has ended, or MLX connects, during which no thread of Python runs."""
        return self.end is not None or self.phase == "connect"

    @property
    def doing(self) -> str:
        """What the rank did last, for a message."""
        done = f", after {self.count} tokens" if self.phase == "decode" else ""
        return f"while {DOING.get(self.phase, self.phase)}{done}"


def overdue(cluster: Cluster, ranks: list[RankState], clocks: Clocks) -> tuple[str, str] | None:
    """Return the message and the fix for ranks in which nothing happens any more; None while all is well."""
    now = time.monotonic()
    for number, rank in enumerate(ranks):
        if not rank.is_silent_by_nature and now - rank.heard > clocks.silence:
            message = f"{cluster.name(number)} gave no sign of life for {clocks.silence:g} s {rank.doing}"
            return message, "its process or host is stopped, asleep or cut off: see to it, and run again"
    waiting = [number for number, rank in enumerate(ranks) if rank.end is None]
    if not waiting:
        return None
    # The others wait for the ranks that are furthest behind.
    places = {number: (_ORDER.index(ranks[number].phase), ranks[number].count) for number in waiting}
    last = min(places.values())
    behind = [number for number in waiting if places[number] == last]
    one_has_ended = len(waiting) < len(ranks)
    limit, missing = clocks.limit("end" if one_has_ended else ranks[behind[0]].phase)
    if now - max(rank.advanced for rank in ranks) <= limit:
        return None
    names = " and ".join(map(cluster.name, behind))
    stand = "stands" if len(behind) == 1 else "stand"
    message = f"no {missing} for {limit:g} s: {names} {stand} still {ranks[behind[0]].doing}"
    return (
        message,
        "see whether its host sleeps or lost the network; --token-timeout and --load-timeout set the limits",
    )
