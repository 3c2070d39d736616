"""A request's place in a group, which its branch's name carries.

The nonce of a point has 30 digits: 12 of the group, 2 of the point's index, 2 of the number of points, and 14 of the
point's idempotency key. The nonce is in the manifest, and a signed request binds it, so runners and clients of any
version accept it. Anyone can give a branch such a name, which decides about nothing but where that branch is listed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bridge.bus import branch_names
from bridge.bus.branch_names import age_sort_key
from bridge.common.advice import Advice, command
from bridge.errors import UsageError
from bridge.presets.points import MOST_POINTS

GROUP = re.compile(r"[0-9a-f]{12}")
# How many branches of one group are listed: strangers may add theirs.
MOST_LISTED = 2 * MOST_POINTS

_PLACE = re.compile(r"(?P<group>[0-9a-f]{12})(?P<index>[0-9a-f]{2})(?P<count>[0-9a-f]{2})[0-9a-f]{14}")


@dataclass(frozen=True)
class Place:
    """The place of a point in its group: the group's id, the point's index from 0, and the number of points."""

    group: str
    index: int
    count: int

    @property
    def digits(self) -> str:
        """The first 16 digits of the point's nonce after the time."""
        return f"{self.group}{self.index:02x}{self.count:02x}"


def check_group(text: str) -> None:
    """Raise UsageError unless a text can be the id of a group."""
    if not GROUP.fullmatch(text):
        fix = Advice("Give the 12 hexadecimal digits that ", command("run"), " printed.")
        raise UsageError(f"{text!r} is not the id of a group", fix=fix)


def place_of(branch: str) -> Place | None:
    """Return the place in a group that a branch's name shows; None without one."""
    _, nonce = branch_names.listed_name(branch) or ("", "")
    match = _PLACE.fullmatch(nonce.partition("-")[2])
    if not match:
        return None
    place = Place(match["group"], int(match["index"], 16), int(match["count"], 16))
    return place if place.index < place.count <= MOST_POINTS else None


def group_of(branch: str) -> str | None:
    """Return the id of the group that a branch's name shows; None without one."""
    place = place_of(branch)
    return place.group if place else None


def members(branches: Iterable[str], group: str) -> list[str]:
    """Return the branches whose names claim a group, by the index of the point; at most ``MOST_LISTED``, the oldest."""
    claimed = [branch for branch in branches if group_of(branch) == group]
    oldest = sorted(claimed, key=age_sort_key)[:MOST_LISTED]
    return sorted(oldest, key=lambda branch: (place_of(branch) or Place("", 0, 0)).index)
