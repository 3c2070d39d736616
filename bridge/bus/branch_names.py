"""The format of request branch names, ``<prefix><preset>-<nonce>[<suffix>]``, and the requesters that they show."""

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod

from bridge.common import limits
from bridge.common.advice import SUFFIX, Advice
from bridge.errors import UsageError

DEFAULT_PREFIX = "mac-bridge/"
DEFAULT_PATTERNS = ("mac-bridge/*", "AgentMemory/mac-bridge-*", "claude/mac-bridge-*", "copilot/mac-bridge-*")

NONCE = re.compile(r"(?P<seconds>[0-9]{9,11})-[0-9a-f]{6,32}")
PRESET = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
# Only agents' namespaces have capital letters; everything after the last slash is lower case. A prefix with such
# a last part ends in `mac-bridge-`, to distinguish it from the beginning of a preset's name.
_PREFIX = re.compile(
    r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?/)+(?:(?:[a-z0-9][a-z0-9._-]*-)?mac-bridge-)?"
)
_SUFFIX = re.compile(r"(?:-[a-z0-9]{1,32})?")
_AGENT_MEMORY = re.compile(r"AgentMemory/.+(?P<suffix>-[a-z0-9]{4,8})")
# Each part can be a file name in a git repository, with room for git's own endings.
_PART = rf"(?!\.)[A-Za-z0-9._-]{{1,{limits.BRANCH_PART_CHARS}}}(?<!\.)(?<!\.lock)"
_SAFE = re.compile(rf"(?!-){_PART}(?:/{_PART})*")
_BRANCH = re.compile(
    rf"(?P<prefix>{_PREFIX.pattern})(?P<preset>{PRESET.pattern})"
    rf"-(?P<nonce>[0-9]{{9,11}}-[0-9a-f]{{6,32}})(?P<suffix>-[a-z0-9]{{1,32}})?"
)
# A request as readers list it: a runner answers one whose preset has an impossible name too. Its prefix may end as
# in _PREFIX.
_LISTED = re.compile(
    r"(?:.+/(?:(?:[^/]*-)?mac-bridge-)?)?(?P<preset>[^/]+?)"
    rf"-(?P<nonce>{NONCE.pattern.replace('?P<seconds>', '?:')})(?:-[a-z0-9]{{1,32}})?"
)
# ("signer", name) or (pattern, "here" or "below", folder, name): each element shares the turns of the one before it.
Requester = tuple[str, ...]


@dataclass(frozen=True)
class Namespace:
    """Where this agent may push: the text before the preset's name and after the nonce."""

    prefix: str = DEFAULT_PREFIX
    suffix: str = ""

    def __post_init__(self) -> None:
        is_unsafe = ".." in self.prefix or ".lock/" in self.prefix or self.prefix.startswith("refs/")
        if is_unsafe or not _PREFIX.fullmatch(self.prefix):
            fix = "Use something like 'team/' or 'claude/mac-bridge-': ASCII letters, digits, . _ - and /."
            raise UsageError(f"{self.prefix!r} cannot begin a request branch", fix=fix)
        if not _SUFFIX.fullmatch(self.suffix):
            fix = Advice(
                "A suffix is a dash and up to 32 lower-case letters or digits, such as ", SUFFIX, "."
            )
            raise UsageError(f"{self.suffix!r} cannot end a request branch", fix=fix)

    def branch(self, preset: str, nonce: str) -> str:
        """Return the branch of a request for ``preset`` with ``nonce``."""
        return f"{self.prefix}{preset}-{nonce}{self.suffix}"


@dataclass(frozen=True)
class BranchName:
    """The parts of a request branch's name."""

    prefix: str
    preset: str
    nonce: str
    suffix: str


def detect_namespace(
    current_branch: str | None, *, prefix: str | None = None, suffix: str | None = None
) -> Namespace:
    """Return the namespace to push to: an explicit choice, otherwise derived from the branch that is checked out.

    Cloud agents are confined: on ``AgentMemory/<name>-<sfx>`` requests keep the namespace and the suffix, on
    ``claude/...`` and ``copilot/...`` they stay inside that prefix.

    Raises:
        UsageError: git or the runner would not take the name.
    """
    here = current_branch or ""
    agent, slash, _ = here.partition("/")
    if prefix is not None:
        # A prefix that was given replaces the detected namespace and its suffix.
        namespace = Namespace(prefix)
    elif memory := _AGENT_MEMORY.fullmatch(here):
        namespace = Namespace("AgentMemory/mac-bridge-", memory["suffix"])
    elif slash and agent in ("claude", "copilot"):
        namespace = Namespace(f"{agent}/mac-bridge-")
    else:
        namespace = Namespace()
    return namespace if suffix is None else replace(namespace, suffix=suffix)


def lookup_patterns(namespace: Namespace) -> tuple[str, ...]:
    """Return the patterns of the branches that a requester in this namespace reads."""
    own = f"{namespace.prefix}*"
    return DEFAULT_PATTERNS if matches(own, DEFAULT_PATTERNS) else (own, *DEFAULT_PATTERNS)


def new_nonce(now: float | None = None) -> str:
    """Return unix seconds, a dash, and 48 random bits in hexadecimal."""
    return f"{int(time.time() if now is None else now)}-{secrets.token_hex(6)}"


def nonce_time(nonce: str) -> int:
    """Return the unix seconds in a nonce. The nonce must be valid."""
    return int(nonce.split("-", 1)[0])


def parse_branch(branch: str) -> BranchName | None:
    """Split a request branch's name into its parts; return None for any other branch."""
    match = _BRANCH.fullmatch(branch)
    if not match or not is_safe(branch):
        return None
    return BranchName(match["prefix"], match["preset"], match["nonce"], match["suffix"] or "")


def age_sort_key(branch: str) -> tuple[int, str]:
    """Order request branches, oldest first, by the time in their nonces."""
    return (requested_at(branch), branch)


def requested_at(branch: str) -> int:
    """Return the Unix seconds at which a request was made, or 0 if the branch is no request."""
    listed = listed_name(branch)
    return nonce_time(listed[1]) if listed else 0


def listed_name(branch: str) -> tuple[str, str] | None:
    """Return preset and nonce in a branch's name, also if no preset can have that name; None without a nonce."""
    match = _LISTED.fullmatch(branch) if is_safe(branch) else None
    return (match["preset"], match["nonce"]) if match else None


def is_safe(branch: str) -> bool:
    """Return whether a branch's name is short, valid for git, and without characters that have a meaning elsewhere."""
    return len(branch) <= limits.BRANCH_CHARS and ".." not in branch and _SAFE.fullmatch(branch) is not None


def matches(branch: str, patterns: tuple[str, ...] | list[str]) -> bool:
    """Return whether a branch matches one of the patterns, in which ``*`` matches anything."""
    return any(fnmatchcase(branch, pattern) for pattern in patterns)


def folders(branch: str) -> list[str]:
    """Return the folders in which git stores a branch. No other branch can have a name that is such a folder."""
    parts = branch.split("/")
    return ["/".join(parts[:i]) for i in range(1, len(parts))]


def is_in_conflict(branch: str, other: str) -> bool:
    """Return whether some server cannot hold both branches: in some case of letters, one is a folder of the other."""
    shorter, longer = sorted((branch.casefold(), other.casefold()), key=len)
    return longer.startswith(f"{shorter}/")


def pattern_prefixes(patterns: Iterable[str]) -> list[str]:
    """Return the prefixes of the patterns, longest first. A prefix that begins with another one has its own turns."""
    return sorted((pattern.removesuffix("*") for pattern in patterns), key=len, reverse=True)


def unsigned_requester(branch: str, name: str, known: Sequence[str]) -> Requester:
    """Return the requester of a branch by the name in its manifest; ``known`` is what ``pattern_prefixes`` returns."""
    parsed = parse_branch(branch)
    pattern = next((pattern for pattern in known if branch.startswith(pattern)), "")
    folder = (parsed.prefix if parsed else "").removeprefix(pattern)
    return (pattern, "below" if folder else "here", folder, name)


def turn_cycle_lengths(waiting: Iterable[Requester]) -> dict[Requester, int]:
    """Return for each requester how many requesters share its turns: the product over all elements.

    If all are directly below one pattern, that is the number of requesters. At most one job less than this runs before
    a requester's next turn on each runner, however many requests the others have.
    """
    everybody = set(waiting)
    siblings: dict[Requester, set[str]] = defaultdict(set)
    for requester in everybody:
        for step, name in enumerate(requester):
            siblings[requester[:step]].add(name)
    return {who: prod(len(siblings[who[:step]]) for step in range(len(who))) for who in everybody}
