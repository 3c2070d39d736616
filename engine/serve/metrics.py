"""Prometheus metrics. Counters of speculation have vLLM's names and meanings; others begin with ``kakeya_``."""

from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The server's counters, in their own registry, so that one process can contain several servers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.drafts = counter("vllm:spec_decode_num_drafts", "Rounds that verified drafts.")
        self.draft_tokens = counter("vllm:spec_decode_num_draft_tokens", "Drafted tokens.")
        self.accepted = counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted.")
        self.prompt = counter("kakeya_prompt_tokens", "Prompt tokens, cached ones among them.")
        self.cached = counter("kakeya_cached_tokens", "Prompt tokens that came from a kept prefix.")
        self.generated = counter("kakeya_generation_tokens", "Tokens that were decoded.")
        self.finished = counter("kakeya_answers", "Answers by how they ended.", ["reason"])
        self.refused = counter("kakeya_refused", "Requests refused because the queue was full.")
        not_followed = "Answers that did not follow an option of their request."
        self.fallbacks = counter("kakeya_fallbacks", not_followed)
        self._stored = counter("kakeya_prefix_store", "What happened to blocks on disk.", ["event"])
        self.first = histogram("kakeya_first_token_seconds", "To the first token.", buckets=SECONDS)
        sizes = (2, 3, 4, 6, 8, 12, 16, 32)
        self.joint = histogram("kakeya_joint_answers", "Answers in one forward.", buckets=sizes)
        self.waited = histogram("kakeya_queue_seconds", "In the queue.", buckets=SECONDS)

    def watch(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is computed when metrics are read."""
        Gauge(name, about, registry=self.registry).set_function(read)

    def stored(self, event: str) -> None:
        """Count an event of the prefix store."""
        self._stored.labels(event).inc()

    def count(self, generation: Any) -> None:
        """Count a complete answer."""
        stats = generation.stats
        self.drafts.inc(stats.verify_steps)
        self.draft_tokens.inc(stats.proposed)
        self.accepted.inc(stats.accepted)
        self.prompt.inc(len(generation.job.ids))
        self.cached.inc(generation.cached)
        self.finished.labels(stats.finish_reason).inc()
        if generation.fallback:
            self.fallbacks.inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
