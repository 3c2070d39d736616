"""`kakeya presets`."""

from __future__ import annotations

import click
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge import environment
from bridge.cli.common import complete_preset, console
from bridge.command import json_option, put_json, say
from bridge.presets import Preset, find_preset, load_presets


@click.command()
@click.argument("name", required=False, shell_complete=complete_preset)
@json_option
def command(name: str | None, *, as_json: bool) -> None:
    """List the jobs that can be asked for, or show one."""
    presets = load_presets(environment.get("KAKEYA_PRESETS"))
    for error in presets.broken.values():
        say(f"warning: left out, since it cannot be used: {error.message}")
    chosen = [find_preset(presets, name)] if name else list(presets.values())
    if as_json:
        shown = [{**preset.model_dump(mode="json"), "digest": preset.digest} for preset in chosen]
        put_json(shown[0] if name else shown)
    elif name:
        _show(chosen[0])
    else:
        _list(chosen)


def _list(presets: list[Preset]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("preset", no_wrap=True)
    table.add_column("parameters", no_wrap=True)
    table.add_column("what it does")
    for preset in presets:
        params = " ".join(f"{name}=" if param.required else name for name, param in preset.params.items())
        table.add_row(preset.name, params or "-", preset.description)
    out = console()
    out.soft_wrap = False
    out.print(table)
    out.print("\nA parameter with = must be given. One of them in full: kakeya presets NAME", markup=False)


def _show(preset: Preset) -> None:
    out = console()
    out.soft_wrap = False
    out.print(Panel(preset.description, title=preset.name, title_align="left"))
    if preset.params:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("parameter", "allowed", "default", ""):
            table.add_column(heading)
        for name, param in preset.params.items():
            default = Text("must be given", style="yellow") if param.required else Text(str(param.default))
            table.add_row(name, param.allowed, default, param.help)
        out.print(table)
        out.print()
    whose = "what is installed on the runner" if preset.code == "installed" else "the tree of the request"
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("runs code of", whose)
    if preset.inputs:
        facts.add_row("reads", f"*{preset.inputs.ending} below {preset.inputs.under} of the request, as data")
    facts.add_row("time limit", f"{preset.timeout_s} s")
    kinds = ", ".join(preset.kinds) or "reports of any known kind"
    facts.add_row("leaves", ", ".join(preset.collect) or "its log")
    facts.add_row("gate", f"{kinds}, judged where they are measured" if preset.gated else "none")
    facts.add_row("network", "yes" if preset.network else "no")
    facts.add_row("digest", preset.digest)
    for step in preset.steps:
        facts.add_row("runs", Text(" ".join(step.argv)))
    out.print(facts)
    example = " ".join(f"-p {name}=..." for name, param in preset.params.items() if param.required)
    out.print(f"\nkakeya run {preset.name} {example} --wait".replace("  ", " "), markup=False)
