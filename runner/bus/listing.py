"""What the bus lists: its request branches and where they are, read as it comes and within bounds.

The listing is compared as a whole with the one before: between two polls mostly nothing has happened.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from itertools import chain

from bridge import limits
from bridge.bus import branch_names
from bridge.errors import InfrastructureError, ProcessError
from bridge.system import git_output
from bridge.system.git import NETWORK_TIMEOUT, Git

ODD = "no request can have their names"

_HEADS = "refs/heads/"
_SHOWN = 20


class Listing:
    """The request branches on the bus, as `{branch: commit id}`."""

    def __init__(self, git: Git, url: str, patterns: tuple[str, ...]) -> None:
        self._git = git
        self._url = url
        self._prefixes = tuple(f"{_HEADS}{pattern.removesuffix('*')}" for pattern in patterns)
        self._digest = b""
        self.tips: dict[str, str] = {}
        # How many names under the patterns no request can have, some of them, and how many branches are too many.
        self.odd = 0
        self.some_odd: list[str] = []
        self.too_many = 0
        self._told = (0, 0)

    def read(self) -> bool:
        """Ask the bus. Says whether anything changed. Raises InfrastructureError where it cannot be reached."""
        child = self._git.start("ls-remote", "--heads", "--refs", "--", self._url, timeout=NETWORK_TIMEOUT)
        digest, held, size = hashlib.blake2b(), [], 0
        try:
            chunks = child.chunks()
            for chunk in chunks:
                digest.update(chunk)
                held.append(chunk)
                size += len(chunk)
                if size > limits.LISTING_BYTES:
                    self._digest = b""
                    self._take(chain(held, chunks))
                    return True
        except ProcessError as error:
            raise InfrastructureError(
                f"cannot fetch from the bus: {error.words()}", code="unreachable"
            ) from error
        finally:
            child.close()
        if digest.digest() == self._digest:
            return False
        self._take(held)
        self._digest = digest.digest()
        return True

    def _take(self, chunks: Iterable[bytes]) -> None:
        """Read a listing. Of too many branches a random part is taken, in which each of them is sooner or later."""
        found: dict[str, str] = {}
        places: list[str] = []
        self.odd = self.too_many = 0
        self.some_odd = []
        for name, oid in git_output.each_ref(git_output.each_line(chunks)):
            if not name.startswith(self._prefixes):
                continue
            branch = name.removeprefix(_HEADS)
            if not branch_names.is_safe(branch):
                self.odd += 1
                if len(self.some_odd) < _SHOWN:
                    self.some_odd.append(branch[: limits.BRANCH_CHARS])
                continue
            if len(found) >= limits.BRANCHES:
                self.too_many += 1
                place = random.randrange(limits.BRANCHES + self.too_many)  # noqa: S311 - who is looked at, no secret
                if place >= limits.BRANCHES:
                    continue
                del found[places[place]]
                places[place] = branch
            else:
                places.append(branch)
            found[branch] = oid
        self.tips = found

    def news(self) -> list[str]:
        """Return sentences about what is not looked at, once for each time that it became more."""
        said = []
        if self.odd > self._told[0]:
            said.append(f"{self.odd} branches are left out: {ODD}, such as {self.some_odd[0]!a}")
        if self.too_many > self._told[1]:
            said.append(
                f"the bus holds {self.too_many} request branches more than the {limits.BRANCHES} that are looked at; "
                "each poll takes others of them"
            )
        self._told = (self.odd, self.too_many)
        return said
