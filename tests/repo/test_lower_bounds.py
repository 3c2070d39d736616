"""No list of dependencies admits a version with a public advisory, also not of a package that another one brings."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.repo import console

PROJECT = tomllib.loads((console.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LISTS = {"base": PROJECT["dependencies"], **{name: EXTRAS[name] for name in ("mcp", "web", "serve")}}
LOCKS = sorted((console.ROOT / "release" / "requirements").glob("*.txt"))

# The first version after the last public advisory, as of November 2026.
FIXED = {
    "cryptography": "50.0", "fastapi": "0.109.1", "filelock": "3.20.3", "gitpython": "3.2.1", "h11": "0.16",
    "idna": "3.15", "jinja2": "3.1.6", "pygments": "2.20", "pyjwt": "2.15", "python-multipart": "0.0.31",
    "requests": "2.33", "starlette": "1.3.1", "urllib3": "2.8",
}  # fmt: skip


def bounds(names: list[str]) -> dict[str, Version]:
    """The lower bound of each package of a list."""
    found = {}
    for line in map(Requirement, names):
        lowest = [Version(each.version) for each in line.specifier if each.operator in {">=", "=="}]
        found[canonicalize_name(line.name)] = max(lowest, default=Version("0"))
    return found


def reached(names: list[str]) -> set[str]:
    """All packages that an installation of a list brings on this machine."""
    found: set[str] = set()
    ways = [Requirement(name) for name in names]
    while ways:
        way = ways.pop()
        name = canonicalize_name(way.name)
        extras = way.extras or {""}
        if way.marker and not way.marker.evaluate({"extra": ""}):
            continue
        if name in found and not way.extras:
            continue
        found.add(name)
        try:
            inner = [Requirement(line) for line in requires(way.name) or []]
        except PackageNotFoundError:
            continue
        for need in inner:
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
                need.marker = None
                ways.append(need)
    return found


@pytest.mark.parametrize("name", LISTS)
def test_each_package_that_a_list_brings_has_a_safe_lower_bound(name):
    own = bounds(LISTS["base"]) | bounds(LISTS[name])
    brought = reached(LISTS[name])

    assert len(brought) > len(LISTS[name])
    low = {
        each: str(own.get(each, "none"))
        for each in brought & FIXED.keys()
        if own.get(each, Version("0")) < Version(FIXED[each])
    }
    assert low == {}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_no_locked_version_has_an_advisory(lock):
    locked = re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(locked) > 3
    old = [
        f"{name}=={version}"
        for name, version in locked
        if Version(version) < Version(FIXED.get(canonicalize_name(name), "0"))
    ]
    assert old == []
