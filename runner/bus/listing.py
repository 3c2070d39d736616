"""The bus's listing of request branches and their tips, read as a stream and within limits.

Each listing is compared as a whole with the previous one, because it seldom changes between two polls. If there are
more branches than the limit, some are chosen at random. New branches and branches chosen a moment ago come first, so
that a request that arrives during a flood stays chosen until it has had its turn.
"""

import hashlib
import random
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import chain, islice

from bridge.bus import branch_names, exact_refs
from bridge.common import limits
from bridge.errors import InfrastructureError, ProcessError
from bridge.system import git_output
from bridge.system.git import Git

_MISNAMED = "no request can have their names"

_HEADS = "refs/heads/"
_SHOWN = 20
# If there are too many branches, half of the chosen ones are replaced after this many seconds and polls.
CHOSEN_S = 10.0
_CHOSEN_POLLS = 3
_MOST_HASHES = 1 << 20
_ID_DIGITS = 40  # of a SHA-1 object id
# Branches at the same commit cannot all be requests. They are counted per commit, in this many hash slots.
_BUCKETS = 1 << 16
# Offsets for ranks: the branches with the lowest ranks are chosen. New and staying branches rank below 1.
_OTHERS, _COPIES = 1, 2


class Listing:
    """The request branches on the bus, as ``{branch: commit id}``."""

    def __init__(self, git: Git, url: str, patterns: tuple[str, ...]) -> None:
        self._git = git
        self._url = url
        self._prefixes = tuple(f"{_HEADS}{pattern.removesuffix('*')}" for pattern in patterns)
        self._digest = b""
        self.tips: dict[str, str] = {}
        # `misnamed_count` counts the branches whose names no request can have; `too_many`, those beyond the limit.
        self.misnamed_count = 0
        self.misnamed: list[str] = []
        self.too_many = 0
        # The number of branches that are symbolic references, and the name of one.
        self.links = 0
        self._a_link = ""
        self._reported_counts = (0, 0, 0)
        self._offered = self._copies = 0
        # Used only if there are too many branches: hashes of the branches and commits of the last listing,
        # the time of the last choice, and the number of polls since. Python's hash includes a secret of this
        # process, so nobody can choose names that collide.
        self._before: set[int] = set()
        self._chosen_at = 0.0
        self._polls = 0

    def read(self) -> bool:
        """List the bus. Returns whether anything changed; InfrastructureError if the bus cannot be listed."""
        child = exact_refs.start_listing(self._git, self._url, "--heads", "--symref")
        digest, lines, size = hashlib.blake2b(), [], 0
        self._polls += 1
        try:
            chunks = child.chunks()
            for chunk in chunks:
                digest.update(chunk)
                lines.append(chunk)
                size += len(chunk)
                if size > limits.LISTING_BYTES:
                    self._digest = b""
                    self._take(chain(lines, chunks))
                    return True
        except ProcessError as error:
            message = f"cannot fetch from the bus: {error.summary()}"
            raise InfrastructureError(message, code="unreachable") from error
        finally:
            child.close()
        if digest.digest() == self._digest and not (self.too_many and self._is_time_to_choose):
            return False
        self._take(lines)
        self._digest = digest.digest()
        return True

    def _branches(self, chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
        """Yield the names under our patterns and their commits."""
        self.links = 0
        for name, oid, is_link in git_output.each_listed(git_output.each_line(chunks)):
            if not name.startswith(self._prefixes):
                continue
            if is_link:
                # An answer to a symbolic reference would be pushed to the branch that it points to.
                self.links += 1
                self._a_link = name.removeprefix(_HEADS)[: limits.BRANCH_CHARS]
                continue
            if len(oid) != _ID_DIGITS:
                fix = "use a bus that was made with --object-format=sha1"
                message = f"the bus names its objects by SHA-256, which is not supported: {fix}"
                raise InfrastructureError(message, code="object_format")
            yield name.removeprefix(_HEADS), oid

    def _take(self, chunks: Iterable[bytes]) -> None:
        """Read a listing. If there are too many branches, select some; sooner or later each is selected."""
        stays = list(self.tips)
        if self._is_time_to_choose:
            # The branches stand in the order in which they were chosen. The older half is replaced.
            stays = stays[len(stays) // 2 :]
            self._chosen_at, self._polls = time.monotonic(), 0
        now: set[int] = set()
        self._offered = self._copies = 0
        # New branches come before the older half of the staying ones: a flood takes at most half of the slots.
        ranks = {branch: 1 - i / len(stays) for i, branch in enumerate(stays, 1)}
        ranked = self._ranked(chunks, ranks, now)
        chosen = list(islice(ranked, limits.BRANCHES))
        if (another := next(ranked, None)) or self._copies:
            chosen = nsmallest(limits.BRANCHES, chain(chosen, [another] if another else [], ranked))
        copies = sum(rank >= _COPIES for rank, _, _ in chosen)
        # Copies are at the end of `chosen`: drop those beyond the limit.
        del chosen[len(chosen) - max(0, copies - limits.COPIES) :]
        # New branches are put last, so that they stay chosen the longest.
        tips = {branch: oid for _, branch, oid in reversed(chosen)}
        self.tips = {branch: tips[branch] for branch in stays if branch in tips} | tips
        self.too_many = self._offered - len(tips)
        self._before = now if self.too_many else set()

    def _ranked(
        self, chunks: Iterable[bytes], stays: Mapping[str, float], now: set[int]
    ) -> Iterator[tuple[float, str, str]]:
        """Yield branches with their ranks, and record them in ``now``. The lowest ranks are chosen."""
        at_commit = array("L", bytes(_BUCKETS * array("L").itemsize))
        self.misnamed_count, self.misnamed = 0, []
        for branch, oid in self._branches(chunks):
            known = self.tips.get(branch)
            if known is None and not branch_names.is_safe(branch):
                self.misnamed_count += 1
                if len(self.misnamed) < _SHOWN:
                    self.misnamed.append(branch[: limits.BRANCH_CHARS])
                continue
            if len(now) < _MOST_HASHES:
                now.add(hash((branch, oid)))
            bucket = hash(oid) % _BUCKETS
            at_commit[bucket] += 1
            by_chance = random.random()  # noqa: S311 - who is looked at, no secret
            if branch in stays:
                rank = stays[branch]
            elif at_commit[bucket] > limits.COPIES:
                rank = _COPIES + by_chance
                self._copies += 1
            elif known == oid or hash((branch, oid)) in self._before:
                rank = _OTHERS + by_chance
            else:
                rank = by_chance / 2
            self._offered += 1
            yield rank, branch, oid

    @property
    def _is_time_to_choose(self) -> bool:
        return self._polls >= _CHOSEN_POLLS and time.monotonic() - self._chosen_at >= CHOSEN_S

    def news(self) -> list[str]:
        """Return messages about branches that are ignored, each time their number has grown."""
        news = []
        if self.misnamed_count > self._reported_counts[0]:
            news.append(
                f"{self.misnamed_count} branches are left out: {_MISNAMED}, such as {self.misnamed[0]!a}"
            )
        if self.too_many > self._reported_counts[1]:
            news.append(
                f"the bus holds {self.too_many} request branches more than the {limits.BRANCHES} that are looked at; "
                "they have their turns, and what is new is looked at first"
            )
        if self.links > self._reported_counts[2]:
            news.append(
                f"{self.links} branches are left out: they are symbolic references, which stand for other branches, "
                f"such as {self._a_link!a}"
            )
        self._reported_counts = (self.misnamed_count, self.too_many, self.links)
        return news
