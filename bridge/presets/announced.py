"""Presets that a runner announces, so that requesters without a file of them can ask for them.

A runner adds the definitions that do not come with the installation to its presence record. Anyone who may push can
make such a record: nothing of it replaces a preset that is known here, and it decides about nothing that runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from bridge.common import limits, strict_json
from bridge.errors import ManifestError
from bridge.presets.load import Offer, Presets
from bridge.presets.model import Preset

_VERSION = 1
_BOUNDS = strict_json.Bounds(nests=20_000, values=60_000, names=60_000)
# A message names at most this many runners.
_NAMED = 5


@dataclass(frozen=True)
class Offers:
    """What the runners on a bus offer."""

    # The runners of each preset, and the definitions that they announce.
    runners: Mapping[str, list[Offer]] = field(default_factory=dict)
    definitions: Mapping[str, tuple[Preset, Offer]] = field(default_factory=dict)
    # Why the records could not be read.
    problem: str = ""

    def add_to(self, presets: Presets) -> Presets:
        """Add the presets that only runners have. A known name is never replaced, not even a broken file's."""
        new = {
            name: (preset, offer)
            for name, (preset, offer) in self.definitions.items()
            if name not in presets and name not in presets.broken
        }
        sources = {name: f"announced by {offer.runner}, {offer.voucher}" for name, (_, offer) in new.items()}
        notes = presets.notes or ([self.problem] if self.problem else [])
        merged = {**presets, **{name: preset for name, (preset, _) in new.items()}}
        together = Presets(merged, presets.broken, {**presets.sources, **sources}, notes)
        together.announced = set(new)
        together.offers = self.runners
        return together


def runners_of(presets: Presets, name: str) -> str:
    """Return which runners offer a preset, for people; empty if none does, as far as is known."""
    offers = presets.offers.get(name, [])
    digest = presets[name].digest
    shown = [
        offer.runner
        + (f" on {offer.bus}" if offer.bus else "")
        + ("" if offer.digest == digest else " (defined differently there)")
        for offer in offers[:_NAMED]
    ]
    more = f" and {len(offers) - _NAMED} more" if len(offers) > _NAMED else ""
    return ", ".join(shown) + more


def pack(presets: Iterable[Preset]) -> bytes | None:
    """Return definitions as the file of a presence record; None if there are none. What does not fit is left out."""
    packed: list[object] = []
    size = 0
    for preset in presets:
        definition = preset.definition()
        size += len(strict_json.dumps(definition)) * 2
        if len(packed) == limits.PRESENCE_DEFINITIONS or size > limits.PRESENCE_DEFINITION_BYTES:
            break
        packed.append(definition)
    if not packed:
        return None
    return strict_json.dumps({"schema_version": _VERSION, "presets": packed}).encode("utf-8", "replace")


def unpack(data: bytes | None, digests: Mapping[str, str]) -> dict[str, Preset]:
    """Read the definitions whose digests are in the runner's record. All others, and malformed ones, are left out."""
    if data is None:
        return {}
    try:
        content = strict_json.loads(data, max_bytes=limits.PRESENCE_DEFINITION_BYTES, bounds=_BOUNDS)
    except ManifestError:
        return {}
    listed = content.get("presets") if isinstance(content, dict) else None
    if not isinstance(listed, list) or len(listed) > limits.PRESENCE_DEFINITIONS:
        return {}
    presets: dict[str, Preset] = {}
    for definition in listed:
        try:
            preset = Preset.model_validate(definition)
        except ValidationError:
            continue
        if digests.get(preset.name) == preset.digest:
            presets[preset.name] = preset
    return presets
