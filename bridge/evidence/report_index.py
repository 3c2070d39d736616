"""An index of a report that compares arms, built once for all rules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar, cast

from bridge.evidence.clock import Clock, Timed
from bridge.evidence.kinds import Report
from bridge.evidence.names import missing_in
from bridge.evidence.parts import Arm, Claim, Prompt, Workload
from bridge.evidence.rows import Decode, Memory, QuantRow, VerifyRow
from bridge.evidence.stats import bounds_of_median, median

STOCK_LOOP = "mlx_lm.generate_step"
# Below this the first and the last pass decide what a token took: a loop that computes ahead may have finished early.
LONG = 8

T = TypeVar("T")


class ReportIndex:
    """What rules ask of a report; kinds without arms or prompts have none of them. Warm-up rows count nowhere.

    Repeated queries are cached, because hundreds of claims may be about the same rows. Queries, and loops over the
    report's parts, raise TooLongError once the clock's time is over.
    """

    def __init__(self, report: Report, clock: Clock | None = None) -> None:
        self.report: Any = report
        self._clock = clock or Clock()
        self._cache: dict[tuple[object, ...], Any] = {}
        self.claims: list[Claim] = Timed(report.claims, self._clock)
        self.rows: list[Any] = Timed(getattr(report, "rows", []), self._clock)
        self.all_arms: list[Arm] = Timed(getattr(report, "arms", []), self._clock)
        self.all_prompts: list[Prompt] = Timed(getattr(report, "prompts", []), self._clock)
        self.workloads: dict[str, Workload] = getattr(report, "workloads", {})

    @cached_property
    def resumed(self) -> int:
        """How many of the first rows an earlier, interrupted run left."""
        found = getattr(getattr(self.report, "config", None), "resumed_rows", 0)
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else 0

    @cached_property
    def in_float32(self) -> bool:
        """Whether the target computed in float32."""
        return self.target is not None and self.target.dtype == "float32"

    @cached_property
    def restores_sliding(self) -> bool:
        """Whether sliding layers evict and are restored, while full-attention layers keep everything."""
        return getattr(getattr(self.report, "config", None), "layers", None) == "sliding"

    @cached_property
    def target(self) -> Any:
        """The first model with the role ``target``, or None."""
        models = getattr(self.report, "models", [])
        return next((model for model in models if model.role == "target"), None)

    @cached_property
    def mixes_widths(self) -> bool:
        """Whether some of the target's weights are in single precision: what they are multiplied with becomes so."""
        told = getattr(self.target, "stored_dtypes", None)
        return isinstance(told, list) and "F32" in told and len(told) > 1

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """The arms by name."""
        return {arm.name: arm for arm in self.all_arms}

    @cached_property
    def prompts(self) -> dict[str, Prompt]:
        """The prompts by id."""
        return {prompt.id: prompt for prompt in self.all_prompts}

    def arms_of(self, *roles: str) -> list[Arm]:
        """Return the arms that have one of these roles."""
        return [arm for arm in self.all_arms if arm.role in roles]

    def named(self, *names: str) -> Iterator[Claim]:
        """Yield the claims of these names of which it is known what they are about."""
        yield from (claim for claim in self.claims if claim.name in names and self.is_whole(claim))

    def is_whole(self, claim: Claim) -> bool:
        """Return whether a claim names all that it must, and nothing that is not described."""
        arms = [arm for arm in (claim.arm, claim.against) if arm]
        return not missing_in(claim) and all(arm in self.arms for arm in arms)

    def once(self, key: tuple[object, ...], of: Callable[[], T]) -> T:
        """Return what is known by a key, or else what is then known by it."""
        if key not in self._cache:
            self._clock.look()
            self._cache[key] = of()
        return cast("T", self._cache[key])

    def wanted(self, claim: Claim) -> list[str]:
        """Return the ids of the prompts that a claim is about."""
        return self.once(("wanted", where_of(claim)), lambda: self._wanted(claim))

    def _wanted(self, claim: Claim) -> list[str]:
        where = claim.where
        return [
            prompt.id
            for prompt in self.all_prompts
            if where.workload in (None, prompt.workload)
            and where.prompt in (None, prompt.id)
            and where.length in (None, prompt.length)
            and where.depth in (None, prompt.depth)
        ]

    def common(self, claim: Claim) -> list[str]:
        """Return the prompts of a claim on which each arm that it names was measured."""
        names = [name for name in (claim.arm, claim.against) if name]
        ran = [self.measured.get(name, {}) for name in names]
        return self.once(
            ("common", *names, where_of(claim)),
            lambda: [prompt for prompt in self.wanted(claim) if all(prompt in found for found in ran)],
        )

    @cached_property
    def measured(self) -> dict[str, dict[str, list[Decode | QuantRow]]]:
        """The rows by arm and prompt, in the order in which they ran."""
        found: dict[str, dict[str, list[Decode | QuantRow]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            if isinstance(row, Decode | QuantRow) and not getattr(row, "warmup", False):
                found[row.arm][row.prompt].append(row)
        return {arm: dict(prompts) for arm, prompts in found.items()}

    def decodes(self, arm: str | None, prompt: str) -> list[Decode]:
        """Return an arm's measured rows on a prompt."""
        return self._decoded.get((arm or "", prompt), [])

    @cached_property
    def _decoded(self) -> dict[tuple[str, str], list[Decode]]:
        return {
            (arm, prompt): [row for row in rows if isinstance(row, Decode)]
            for arm, prompts in self.measured.items()
            for prompt, rows in prompts.items()
        }

    def paced(self, arm: str | None, prompt: str) -> list[Decode]:
        """Return an arm's measured rows on a prompt that decoded enough tokens to show its pace."""
        return self.once(
            ("paced", arm, prompt),
            lambda: [row for row in self.decodes(arm, prompt) if row.decode_tokens >= LONG],
        )

    def quants(self, arm: str | None, prompt: str) -> list[QuantRow]:
        """Return a codec's rows on a prompt."""
        rows = self.measured.get(arm or "", {}).get(prompt, [])
        return [row for row in rows if isinstance(row, QuantRow)]

    def all_decodes(self, arm: str | None) -> Iterator[Decode]:
        """Yield all of an arm's measured rows."""
        for prompt in self.measured.get(arm or "", {}):
            yield from self.decodes(arm, prompt)

    def rates(self, arm: str | None, prompt: str) -> tuple[float, float]:
        """Return the decoded tokens a second between which the median over repeats lies; there must be a repeat."""
        return self.once(
            ("rates", arm, prompt), lambda: bounds_of_median(map(rate_of, self.decodes(arm, prompt)))
        )

    def rate(self, arm: str | None, prompt: str) -> float:
        """Return the median over repeats of decoded tokens a second; NaN if none is known."""
        return self.once(("rate", arm, prompt), lambda: median(map(rate_of, self.decodes(arm, prompt))))

    def e2e_rate(self, arm: str | None, prompt: str) -> float:
        """Return the median over repeats of tokens put out over the whole time."""
        return self.once(
            ("e2e", arm, prompt),
            lambda: median(len(row.tokens) / row.e2e_s for row in self.decodes(arm, prompt)),
        )

    def oracle_of(self, row: Decode) -> Decode | None:
        """Return the oracle's row for the same prompt and repeat, or its first one for the prompt."""
        oracle = self.arms[row.arm].oracle if row.arm in self.arms else None
        rows = self.decodes(oracle, row.prompt)
        known = self.once(
            ("oracle", oracle, row.prompt), lambda: {other.repeat: other for other in reversed(rows)}
        )
        return known.get(row.repeat, rows[0] if rows else None)

    def tells_text(self, row: Decode) -> bool:
        """Return whether a row's text must be the text of its tokens. The arm verify1 prints no text."""
        arm = self.arms.get(row.arm)
        return bool(row.text) or arm is None or arm.role != "verify1"

    def finds(self, arm: str | None, prompt: str) -> bool:
        """Return whether every repeat of an arm on a prompt holds the expected answer."""
        expected = self.prompts[prompt].expected
        return self.once(
            ("finds", arm, prompt),
            lambda: bool(expected) and all(str(expected) in row.text for row in self.decodes(arm, prompt)),
        )

    def recall(self, arm: str, prompts: list[str] | None = None) -> float:
        """Return the share of prompts on which an arm finds the answer; NaN without any."""
        asked = prompts if prompts is not None else list(self.measured.get(arm, {}))
        found = [self.finds(arm, prompt) for prompt in asked if prompt in self.prompts]
        return sum(found) / len(found) if found else float("nan")

    def memory(self, arm: str | None, prompt: str) -> float:
        """Return the median over repeats of the live bytes of the cache; NaN if a row does not say."""
        return self.once(("memory", arm, prompt), lambda: self._memory(arm, prompt))

    def _memory(self, arm: str | None, prompt: str) -> float:
        held: list[Memory | None] = [row.memory for row in self.decodes(arm, prompt)]
        return median(memory.cache_bytes if memory else math.nan for memory in held)


def where_of(claim: Claim) -> tuple[object, ...]:
    """Return what a claim is restricted to, as something that can be looked up."""
    where = claim.where
    return (where.workload, where.prompt, where.length, where.depth, where.context)


def took_of(row: Any) -> float:
    """Return the seconds that a row took, its prefill included; 0 if its kind is not timed."""
    if isinstance(row, Decode):
        return float(row.e2e_s)
    return float(row.seconds) if isinstance(row, VerifyRow) else 0.0


def rate_of(row: Decode) -> float:
    """Return decoded tokens a second; NaN if nothing was decoded."""
    return row.decode_tokens / row.decode_s if row.decode_tokens and row.decode_s else float("nan")
