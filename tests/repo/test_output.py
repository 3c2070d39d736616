"""No module prints but through the doors that neutralise what strangers wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What puts text onto a terminal, a stream or a page without looking at it, and the one place that may use it.
DOORS = {
    "click.echo": {"bridge/common/version.py", "bridge/common/cli/output.py"},
    "click.secho": set(),
    "click.style": {"bridge/common/cli/output.py"},
    "click.echo_via_pager": set(),
    "print": {"runner/job/sandbox/attempt.py"},  # a program of its own, which talks to the runner in JSON
    "traceback.print_exc": set(),
    "traceback.print_exception": set(),
    "traceback.print_stack": set(),
    "pprint.pprint": set(),
    "click.get_text_stream": set(),
    "click.get_binary_stream": set(),
    # Whatever is done with them: a stream under another name, its buffer, or lines written together.
    # A door over SSH passes on what the first one wrote, and the answer's archive.
    "sys.stdout": {"bridge/common/cli/output.py", "bridge/common/cli/program.py", "runner/direct/ssh.py"},
    "sys.stderr": {"bridge/common/cli/output.py", "runner/direct/ssh.py"},
    "sys.__stdout__": set(),
    "sys.__stderr__": set(),
    # These write into pipes and files; none into descriptor 1 or 2 (see below).
    "os.write": {
        "bridge/common/session.py",
        "bridge/system/process.py",
        "bridge/system/signals.py",
        "runner/job/supervisor.py",
        "runner/admit/approvals.py",
        "runner/direct/ssh.py",
    },
    "os.writev": set(),
    "os.sendfile": set(),
    "logging": set(),
    "warnings": set(),
    "syslog": set(),
    "rich.print": set(),
    "rich.console.Console": {
        "bridge/common/cli/screen.py",
        "bridge/common/cli/output.py",  # for the engine, which prints nothing of strangers
        "bridge/show/forms/terminal.py",
        "bridge/demo/tables.py",
    },
    "rich.table.Table": {
        "bridge/common/cli/screen.py",
        "bridge/show/forms/terminal.py",
        "bridge/demo/tables.py",
        "bridge/reports/views/terminal.py",
    },
    "rich.markup.escape": {"bridge/cli/demo.py", "bridge/demo/tables.py"},
    "html.escape": set(),
    "markupsafe.escape": {"bridge/common/drawing/markup.py"},
    # Makes text that is not escaped. Elsewhere the name is only a type.
    "jinja2.Environment": {"bridge/show/forms/templates.py"},
}


def names_in(source: str) -> Iterator[str]:
    """Yield the dotted names that a module uses, by where they were imported from."""
    tree = ast.parse(source)
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield node.module.partition(".")[0]
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
            yield from (alias.name.partition(".")[0] for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            yield ".".join(filter(None, (imported.get(head, head), rest)))


# What a program may open or wrap to reach its own output.
OUTPUTS = ("/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2")
OPENERS = ("open", "io.open", "os.open", "os.fdopen", "os.write", "os.dup", "io.FileIO")


def own_outputs_in(source: str) -> Iterator[str]:
    """Yield what reaches the program's own output by its descriptor, its path, or a name that is computed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in OUTPUTS:
            yield str(node.value)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called, first = ast.unparse(node.func), node.args[0]
        if called in OPENERS and isinstance(first, ast.Constant) and first.value in (1, 2):
            yield f"{called}({first.value})"
        if called in ("getattr", "vars") and ast.unparse(first) == "sys":
            yield f"{called}(sys)"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import click as c\nc.echo('')", "click.echo"),
        ("from rich import console as x\nx.Console()", "rich.console.Console"),
        ("print()", "print"),
        ("import sys\nout = sys.stdout\nout.write('')", "sys.stdout"),
        ("import sys\nsys.stdout.buffer.write(b'')", "sys.stdout"),
        ("import sys as s\ns.stderr.writelines([])", "sys.stderr"),
        ("from sys import stdout as out\nout.write('')", "sys.stdout"),
        ("import os\nos.write(1, b'')", "os.write"),
        ("from os import write\nwrite(1, b'')", "os.write"),
        ("import logging\nlogging.getLogger().warning('')", "logging"),
        ("from logging.handlers import X\nX()", "logging"),
        ("import warnings\nwarnings.warn('')", "warnings"),
    ],
)
def test_the_search_sees_names_however_they_are_imported(source, name):
    assert name in set(names_in(source))


@pytest.mark.parametrize(
    "source",
    [
        "open(1, 'w')",
        "os.write(2, b'')",
        "os.fdopen(1)",
        "open('/dev/stdout', 'w')",
        "getattr(sys, 'std' + 'out')",
    ],
)
def test_the_search_sees_what_has_no_name(source):
    assert len([*own_outputs_in(source)]) == 1


@pytest.mark.long
def test_no_module_reaches_its_output_by_another_way():
    files = [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py")]
    reaching = {file: [*own_outputs_in(file.read_text(encoding="utf-8"))] for file in files}

    assert {str(file.relative_to(ROOT)): found for file, found in reaching.items() if found} == {
        # It flushes the two, one after the other.
        "bridge/common/cli/program.py": ["getattr(sys)"],
        # It passes on what was written there, and notices that nobody reads it.
        "runner/direct/ssh.py": ["os.dup(2)", "os.dup(2)"],
    }


@pytest.mark.long
def test_only_the_doors_print():
    using: dict[str, set[str]] = {name: set() for name in DOORS}
    files = [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py")]
    for file in files:
        for name in using.keys() & set(names_in(file.read_text(encoding="utf-8"))):
            using[name].add(str(file.relative_to(ROOT)))

    assert len(files) > 100
    assert using == DOORS


def test_only_the_demonstration_writes_markup():
    """Its texts are this program's own; what comes out of a job it escapes."""
    using = {
        file.name
        for file in (ROOT / "bridge").rglob("*.py")
        if "markup=True" in file.read_text(encoding="utf-8")
    }

    assert using == {"demo.py"}


@pytest.mark.long
def test_markup_is_made_by_two_modules_and_no_template_turns_escaping_off():
    """What makes markup of text calls `Markup`; others pass it on."""
    makers = set()
    for file in [*ROOT.glob("bridge/**/*.py"), *ROOT.glob("runner/**/*.py")]:
        calls = (
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        )
        if any(ast.unparse(call.func).endswith("Markup") and call.args for call in calls):
            makers.add(str(file.relative_to(ROOT)))
    templates = [*ROOT.glob("bridge/**/templates/*.html")]

    assert makers == {"bridge/common/drawing/markup.py", "bridge/show/forms/templates.py"}
    assert len(templates) >= 3
    for file in templates:
        text = file.read_text(encoding="utf-8")
        assert [
            word for word in ("safe", "autoescape", "<script>", "style=", "onclick") if word in text
        ] == [], file.name
