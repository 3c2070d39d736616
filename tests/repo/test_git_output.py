"""What git prints is taken apart in bridge/system/git_output.py alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.system import git_output

ROOT = Path(__file__).parents[2]
DOOR = "bridge/system/git_output.py"
# The second makes one line of the reason that git gives for a failure.
OTHERS = {"bridge/bus/times.py", "bridge/system/git.py"}
CUTS = {"split", "rsplit", "splitlines", "partition", "rpartition"}
# A call of git: of an object that is called so, or of its methods.
GIT = re.compile(r"\b_?git(\.(text|maybe|start|with_env))?\(")


def cut_in(source: str) -> Iterator[str]:
    """Yield the expressions in which a function takes apart what a call of git returned, also by way of a name."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            yield from _cut_in(function)


def _cut_in(function: ast.FunctionDef) -> Iterator[str]:
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.NamedExpr) and node.value and _is_of_git(node.value, names):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CUTS
            and _is_of_git(node.func.value, names)
        ):
            yield ast.unparse(node)


def _is_of_git(node: ast.expr, names: set[str]) -> bool:
    """Return whether an expression is git's output itself: a call, its attribute, a default, or a name for one."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.BoolOp):
        node = node.values[0] if isinstance(node, ast.BoolOp) else node.value
    if isinstance(node, ast.Name):
        return node.id in names
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("strip", "decode")
    ):
        return _is_of_git(node.func.value, names)
    return (
        isinstance(node, ast.Call)
        and GIT.match(f"{ast.unparse(node.func).rpartition('self.')[2]}(") is not None
    )


@pytest.mark.parametrize(
    "line",
    [
        "git.text('remote').split()", "self.git('x').stdout.partition(b' ')", "(git.maybe('x') or '').splitlines()",
        "a = self._git('x').stdout; b = a.split(b'\\n')", "a = git('x'); b = a.stdout.decode().rsplit('/')",
    ],
)  # fmt: skip
def test_the_search_sees_what_is_cut(line):
    assert len([*cut_in(f"def f(self, git):\n    {line}\n")]) == 1


@pytest.mark.long
def test_only_one_module_takes_apart_what_git_prints():
    found = {}
    for file in [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py")]:
        if cut := [*cut_in(file.read_text(encoding="utf-8"))]:
            found[str(file.relative_to(ROOT))] = cut

    assert {name: cut for name, cut in found.items() if name not in {DOOR, *OTHERS}} == {}


def test_what_was_moved_here_reads_what_git_prints():
    assert git_output.split_parents(b"a b c") == ("a", ["b", "c"])
    assert git_output.split_parents(b"a") == ("a", [])
    assert git_output.last_paragraph(b"tree x\n\nsubject\n\nBranch: b\n") == b"Branch: b\n"
    assert git_output.settings(b"core.ignorecase\ntrue\0http.extraheader\nA: b\nc\0core.x\0") == [
        ("core.ignorecase", "true"), ("http.extraheader", "A: b\nc"), ("core.x", "true"),
    ]  # fmt: skip
    packed = b"# pack-refs\na refs/tags/x\n^b\nc refs/heads/y\n"
    assert git_output.packed_refs(packed) == [
        (b"refs/tags/x", b"a refs/tags/x\n^b\n"),
        (b"refs/heads/y", b"c refs/heads/y\n"),
    ]
    assert git_output.packed_refs(b"") == []
