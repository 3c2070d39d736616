"""Which bus fits a request best, and the presets of all buses together."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bridge.bus.presence import RunnerState
from bridge.buses.asking import Answer, silent, silent_error
from bridge.client import Client
from bridge.presets import Presets
from bridge.requests.sighting import RunnerSighting


def fitness(client: Client, preset: str, labels: Sequence[str]) -> int:
    """Return how well a bus fits a request: 0 is best."""
    now = time.time()
    runners = [each for each in client.runners() if not each.lacks(labels)]
    alive = [each for each in runners if each.is_alive(now)]
    if any(_offers(each, preset) and _is_well(each) for each in alive):
        return 0
    if any(_offers(each, preset) for each in alive):
        return 1
    if any(each.record.presets is None for each in alive):
        return 2
    # Nobody lives there who offers it: somebody did, or the bus itself shares it.
    is_shared = f" on {client.remote.name}/" in client.presets.sources.get(preset, "")
    return 3 if is_shared or any(_offers(each, preset) for each in runners) else 4


def has_best(answers: Mapping[int, Answer[int]]) -> bool:
    """Return whether a bus is the best one whatever the others answer."""
    for number in range(len(answers)):
        if number not in answers:
            return False
        if answers[number].value == 0:
            return True
    return False


def _offers(sighting: RunnerSighting, preset: str) -> bool:
    return preset in (sighting.record.presets or {})


def _is_well(sighting: RunnerSighting) -> bool:
    return sighting.record.state is RunnerState.SERVING and not sighting.record.reason


def merged_presets(answers: Sequence[Answer[Presets]]) -> Presets:
    """Return the presets of all buses that answered, each with the runners of all buses that offer it."""
    known = [(answer.bus, answer.value) for answer in answers if answer.value is not None]
    if not known:
        raise silent_error(answers)
    whole = known[0][1]
    presets, broken, sources = dict(whole), dict(whole.broken), dict(whole.sources)
    notes = [*whole.notes]
    offers: dict[str, list[Any]] = {}
    announced = set(whole.announced)
    for bus, some in known:
        for name in some.offers:
            offers.setdefault(name, []).extend(replace(offer, bus=bus.label) for offer in some.offers[name])
        for name, preset in some.items():
            if name not in presets and name not in broken:
                presets[name], sources[name] = preset, some.sources[name]
                announced |= {name} & some.announced
        notes += [note for note in some.notes if note not in notes]
    notes += [f"the bus {label} is left out: {reason}" for label, reason in silent(answers)]
    merged = Presets(presets, broken, sources, notes)
    merged.announced, merged.offers = announced, offers
    return merged
