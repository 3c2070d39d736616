"""The catalogue of models: all models with a name, rules for their channels, and figures published with the codec.

The perplexity changes are from the codec's own report: keys and values of all layers, context 2,048, 32 passages. Each
figure holds only for its channel; nothing is inferred from it for another model, codec or boundary.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from engine.checkpoints import hub
from engine.checkpoints.published import ALONE, BUNDLED, FOUR_BIT, PUBLISHED, WHEELS, four_bit_name
from engine.errors import BadInput
from engine.models import registry, sizes

RAW = "raw"
DEFAULT, LONG, ADVANCED = "e8@q38", "e8@q10", "e8@q4"  # near lossless; long contexts; with a warning
SUGGESTED = (RAW, "e8v@4.25", DEFAULT, "affine@4g64")  # caches that are offered for any model that takes them


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue."""

    name: str  # its short name
    boundary: int = 0  # how many layers at either end have to stay raw with any cache except `raw`
    # The change of perplexity in percent with its error, by cache spec and boundary.
    measured: dict[tuple[str, int], str] = field(default_factory=dict)
    thinks: bool = False  # whether its chat template can disable thinking, as its drafter requires

    @property
    def target(self) -> str:
        """The target's hub id."""
        return PUBLISHED[self.name][0] if self.name in PUBLISHED else ALONE[self.name]

    @property
    def draft(self) -> str | None:
        """The drafter's hub id; None if none was published."""
        return PUBLISHED[self.name][1] if self.name in PUBLISHED else None

    @property
    def why_boundary(self) -> str:
        """The reason for refusing a boundary below ``boundary``."""
        whose = "its perplexity" if self.measured else "the perplexity of a smaller model of its family"
        return (
            f"{self.name} needs a boundary of at least {self.boundary} with any cache but raw: with all layers coded "
            f"{whose} grows more than thirtyfold"
        )


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            "qwen3-4b",
            measured={
                (LONG, 0): "+3.85 ± 1.25 %",
                (ADVANCED, 0): "+17.00 ± 5.34 %",
                ("d4@q10", 0): "+5.62 ± 1.78 %",
                ("d4@q4", 0): "+36.51 ± 13.79 %",
                ("d4@q38", 2): "+0.99 %",
            },
            thinks=True,
        ),
        Entry("qwen3-8b", thinks=True),
        Entry("qwen3.5-4b", thinks=True),
        Entry("qwen2-1.5b"),
        Entry("llama-3.2-3b-instruct"),
        Entry("llama-3.1-8b-instruct"),
        Entry("mistral-7b-instruct-v0.3"),
        Entry(
            "gemma-4-e4b",
            measured={
                (LONG, 0): "+1.56 ± 0.49 %",
                (ADVANCED, 0): "+5.79 ± 1.43 %",
                ("d4@q10", 0): "+2.22 ± 0.60 %",
                ("d4@q4", 0): "+11.19 ± 2.51 %",
            },
        ),
        Entry(
            "deepseek-r1-distill-qwen-1.5b",
            boundary=2,
            measured={
                ("d4@q4", 2): "+15.65 ± 4.2 %",
                ("d4@q10", 2): "+4.11 ± 0.84 %",
                ("d4@q38", 2): "+1.14 %",
            },
        ),
        # Nobody measured this model: it gets the boundary of the family's smaller model, as in the codec's
        # own list.
        Entry("deepseek-r1-distill-qwen-7b", boundary=2),
        Entry(
            "glm-4-9b-chat",
            measured={
                (LONG, 0): "+6.96 ± 2.03 %",
                (ADVANCED, 0): "+32.36 ± 9.40 %",
                ("d4@q10", 0): "+9.94 ± 2.74 %",
                ("d4@q4", 0): "+44.83 ± 14.30 %",
                ("d4@q38", 2): "+2.76 %",
            },
        ),
    )
}
# Quantized weights need the same boundary; no figure was measured with them.
ENTRIES |= {
    four_bit_name(name): replace(known, name=four_bit_name(name), measured={})
    for name, known in ENTRIES.items()
    if name in FOUR_BIT
}


def entry(reference: str) -> Entry | None:
    """Return the entry of a name, a hub id or a folder's name; None if the catalogue has none."""
    wanted = reference.casefold().rstrip("/").rpartition("/")[2]
    for known in ENTRIES.values():
        if wanted in (known.name, known.target.casefold().rpartition("/")[2]):
            return known
    return None


def offered(reference: str) -> tuple[str, ...]:
    """Return the caches to offer for a model; once the model is loaded, without caches that it cannot use."""
    return SUGGESTED if entry(reference) is None else (*SUGGESTED, LONG, ADVANCED)


def channels(name: str, reference: str, specs: Iterable[str] | None = None) -> dict[str, str]:
    """Return a model's channels by cache spec. ``specs`` are the specs that a loaded model can use.

    Before that, a model with a name has all that are offered for it, and any other has ``raw`` alone.
    """
    if specs is None:
        specs = offered(reference) if entry(reference) or _is_name(reference) else (RAW,)
    return {spec: channel_name(name, spec, least_boundary(reference, spec)) for spec in specs}


def _is_name(reference: str) -> bool:
    """Return whether a reference is the name of a pair, or the folder of a fetched one."""
    names, folders = (*BUNDLED, *WHEELS, *PUBLISHED, *ALONE), [str(registry.fetched(name)) for name in WHEELS]
    return reference in names or reference.rstrip("/") in folders


def channel_name(name: str, spec: str, boundary: int) -> str:
    """Return the name of a model with a cache, such as ``tiny@e8-q38-b2``."""
    return f"{name}@{re.sub('[@:=,]', '-', spec)}" + (f"-b{boundary}" if boundary else "")


def least_boundary(reference: str, cache: str) -> int:
    """Return how many layers at either end must stay raw for a model and a cache."""
    known = entry(reference)
    return known.boundary if known is not None and cache != RAW else 0


def pairs() -> list[dict[str, Any]]:
    """Return all named pairs: their parts, whether they are on this machine, and how to get them.

    ``here`` says whether target and drafter are on this machine; ``get`` is the commands that bring what is
    missing, none for bundled pairs. ``channels`` are the pair's names in channel form, as the server offers them, and
    ``channel`` is the default one. Sizes are those of ``engine.models.sizes``.
    """
    return [_pair(name) for name in (*BUNDLED, *WHEELS, *PUBLISHED, *ALONE)]


def _pair(name: str) -> dict[str, Any]:
    target = name
    draft: str | None = name
    commands: list[str] = []
    if name in BUNDLED:
        source, here = "bundled", registry.is_bundled_here(name)
    elif name in WHEELS:
        source, here = "index", registry.is_fetched(name)
        draft = name if (registry.fetched(name) / "draft").is_dir() else None
        commands = [] if here else [f"kakeya-engine models get {name}"]
    else:
        source = "hub"
        target, draft = PUBLISHED[name] if name in PUBLISHED else (ALONE[name], None)
        commands = [f"hf download {id_}" for id_ in (target, draft) if id_ and not hub.is_here(id_)]
        here = not commands
    named = channels(name, name)
    return {
        "name": name, "source": source, "target": target, "draft": draft, "here": here, "get": commands,
        **sizes.facts_of(name, _target(name)),
        "channel": named[DEFAULT], "channels": [*named.values()],
    }  # fmt: skip


def _target(name: str) -> str | None:
    """Return the folder or the hub id of a name's target; None if it has a folder, but not on this machine."""
    try:
        return registry.find(name).target
    except BadInput:
        return None
