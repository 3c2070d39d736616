"""Channels: one name for a model and its cache, such as ``tiny@e8-q38-b2``."""

import re
from dataclasses import dataclass

from engine.cache import spec as cache_spec
from engine.errors import BadInput

FORM = re.compile(
    r"(?P<short>.+)@(?:(?P<lattice>e8|d4)-q(?P<q>[1-9][0-9]{0,3})|e8v-(?P<bits>[2-6]\.25)(?:-(?P<effort>fast|normal|best))?"
    r"|affine-(?P<affine>[234568]g(?:32|64|128))|(?P<raw>raw))(?:-b(?P<boundary>[1-9][0-9]{0,2}))?"
)


@dataclass(frozen=True)
class Channel:
    """A model and its cache.

    Attributes:
        short: the model's name.
        cache: the cache spec, such as ``e8@q38``.
        boundary: how many of the first and last layers stay raw.
    """

    short: str
    cache: str
    boundary: int = 0

    def __str__(self) -> str:
        spec = cache_spec.parse(self.cache)
        if spec.family == "classic":
            variant = f"{spec.lattice}-q{spec.q_range}"
        else:
            variant = self.cache.replace("@", "-").replace(":", "-")
        return f"{self.short}@{variant}" + (f"-b{self.boundary}" if self.boundary else "")

    @classmethod
    def parse(cls, name: str) -> "Channel":
        """Parse a channel's name.

        Raises:
            BadInput: it is not a channel's name.
        """
        match = FORM.fullmatch(name)
        if not match:
            raise BadInput(
                f"no channel {name!r}", "a channel is written like tiny@e8-q38-b2 or tiny@e8v-4.25"
            )
        groups = match.groupdict()
        if groups["lattice"]:
            cache = f"{groups['lattice']}@q{groups['q']}"
        elif groups["bits"]:
            cache = f"e8v@{groups['bits']}" + (f":{groups['effort']}" if groups["effort"] else "")
        else:
            cache = f"affine@{groups['affine']}" if groups["affine"] else "raw"
        return cls(groups["short"], cache, int(groups["boundary"] or 0))
