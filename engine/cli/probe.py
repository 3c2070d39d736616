"""``kakeya-engine probe``."""

import json
from typing import Any

import click

from bridge.common.cli.commands import flag
from bridge.common.cli.output import rich_console


@click.command()
@flag("--json as_json", "Print the facts as JSON.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Show the machine, MLX and the BLAS in use, and check a small computation.

    Fails if MLX or mlx-lm is missing or does not work, and says how to fix it.
    """
    from engine.probe import probe as look

    facts = look()
    if as_json:
        click.echo(json.dumps(facts.as_dict(), indent=2))
    else:
        _show(facts.as_dict())
    for kind, items in (("warning", facts.warnings), ("error", facts.problems)):
        for item in items:
            click.echo(f"{kind}: {item.what} ({item.why}); {item.fix}", err=True)
    if not facts.healthy:
        ctx.exit(1)


def _show(facts: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    for name in ("host", "platform", "os", "chip", "cores"):
        table.add_row(name, str(facts[name]))
    table.add_row("memory", f"{facts['memory_bytes'] / 2**30:.1f} GiB")
    for name, version in facts["versions"].items():
        table.add_row(name, version or "not installed")
    if "check" in facts:
        available = [name for name, there in facts["backends"].items() if there]
        bound = facts["blas"]
        table.add_row("device", facts["device"])
        table.add_row("backends", ", ".join(available))
        table.add_row("ring", "available" if facts["ring"] else "not available")
        table.add_row("blas", f"{bound['name']}, {bound['gflops']} GFLOP/s float32  {bound['library']}")
        table.add_row("computation", "checked" if facts["check"]["ok"] else "WRONG")
    table.add_row("engine", "healthy" if facts["healthy"] else "cannot run here")
    rich_console(soft_wrap=True).print(table)
