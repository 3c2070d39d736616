"""No module prints but through the doors that neutralise what strangers wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What puts text onto a terminal, a stream or a page without looking at it, and the one place that may use it.
DOORS = {
    "click.echo": {"bridge/console.py"},
    "click.secho": set(),
    "click.style": {"bridge/console.py"},
    "click.echo_via_pager": set(),
    "print": {"runner/job/sandbox/attempt.py"},  # a program of its own, which talks to the runner in JSON
    "traceback.print_exc": set(),
    "sys.stdout.write": set(),
    "sys.stderr.write": set(),
    "rich.print": set(),
    "rich.console.Console": {"bridge/cli/screen.py", "bridge/report/terminal.py", "bridge/demo/tables.py"},
    "rich.table.Table": {"bridge/cli/screen.py", "bridge/report/terminal.py", "bridge/demo/tables.py"},
    "rich.markup.escape": {"bridge/cli/demo.py", "bridge/demo/tables.py"},
    "html.escape": set(),
    "markupsafe.escape": {"bridge/report/markup.py"},
    # Makes text that is not escaped. Elsewhere the name is only a type.
    "jinja2.Environment": {"bridge/report/templates.py"},
}


def names_in(source: str) -> Iterator[str]:
    """Yield the dotted names that a module uses, by where they were imported from."""
    tree = ast.parse(source)
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            yield ".".join(filter(None, (imported.get(head, head), rest)))


def test_the_search_sees_names_however_they_are_imported():
    source = "import click as c\nfrom rich import console as x\nc.echo('')\nx.Console()\nprint()\n"

    assert {"click.echo", "rich.console.Console", "print"} <= set(names_in(source))


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

    assert makers == {"bridge/report/markup.py", "bridge/report/templates.py"}
    assert len(templates) >= 3
    for file in templates:
        text = file.read_text(encoding="utf-8")
        assert [
            word for word in ("safe", "autoescape", "<script>", "style=", "onclick") if word in text
        ] == [], file.name
