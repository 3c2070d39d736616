"""The names of models in requests, and channels: names of a model with a cache, such as ``tiny@e8-q38-b2``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.common.errors import UsageError
from bridge.reports import cache_spec
from engine.checkpoints import hub
from engine.errors import BadInput
from engine.models import catalogue

FORM = re.compile(r"(?P<short>.+)@(?P<variant>[a-z][a-z0-9.-]*?)(?:-b(?P<boundary>[1-9][0-9]{0,2}))?")
SPLIT = re.compile(r"k-(?P<keys>.+)-v-(?P<values>.+)")


@dataclass(frozen=True)
class Channel:
    """A model and its cache."""

    short: str  # the model's name
    cache: str  # the cache spec, such as e8@q38
    boundary: int = 0  # how many of the first and last layers stay raw

    def __str__(self) -> str:
        return catalogue.channel_name(self.short, self.cache, self.boundary)

    @classmethod
    def parse(cls, name: str) -> "Channel":
        """Parse a channel's name; BadInput if it cannot be one."""
        match = FORM.fullmatch(name)
        spec = _spec(match["variant"]) if match else ""
        try:
            spec = cache_spec.parse(spec).text
        except UsageError as error:
            fix = "a channel is written like tiny@e8-q38-b2 or tiny@e8v-4.25"
            raise BadInput(f"no channel {name!r}", fix) from error
        assert match is not None  # noqa: S101 - no spec is empty
        return cls(match["short"], spec, int(match["boundary"] or 0))


def _spec(variant: str) -> str:
    """Return the cache spec that a channel's name holds: ``e8v-4.25-fast`` stands for ``e8v@4.25:fast``."""
    if split := SPLIT.fullmatch(variant):
        return f"k={_spec(split['keys'])},v={_spec(split['values'])}"
    return variant.replace("-", "@", 1).replace("-", ":", 1)


def names_of(references: Sequence[str]) -> dict[str, str]:
    """Return the references by the models' names in requests.

    A folder's name is its own, preceded by names of the folders above it as far as needed to distinguish models.
    """
    paths = {each: hub.local(each) for each in references}
    full = {each: str(path.resolve()) if path.is_dir() else each for each, path in paths.items()}
    return {_name(path, set(full.values()) - {path}): reference for reference, path in full.items()}


def _name(path: str, others: set[str]) -> str:
    if not path.startswith("/"):  # a bundled or published name, or a hub id
        return path
    parts = path.split("/")
    tails = ("/".join(parts[-n:]) for n in range(1, len(parts)))

    def names_another(tail: str) -> bool:
        return tail in others or any(each.startswith("/") and each.endswith(f"/{tail}") for each in others)

    return next((tail for tail in tails if not names_another(tail)), path)
