"""``kakeya presets``."""

import textwrap

import click
from rich.table import Column
from rich.text import Text

from bridge.cli.common import complete_preset
from bridge.common import environment
from bridge.common.cli.commands import json_option
from bridge.common.cli.output import Colored, is_read_by_people, put, put_block, put_json, say
from bridge.common.cli.screen import Grid, console
from bridge.presets import Preset, find_preset, load_presets

_WIDTH = 100


@click.command()
@click.argument("name", required=False, shell_complete=complete_preset)
@json_option
def command(name: str | None, *, as_json: bool) -> None:
    """List the available jobs, or show one."""
    presets = load_presets(environment.get("KAKEYA_PRESETS"))
    for error in presets.broken.values():
        say(f"warning: invalid preset ignored: {error.message}")
    chosen = [find_preset(presets, name)] if name else list(presets.values())
    if as_json:
        shown = [{**preset.model_dump(mode="json"), "digest": preset.digest} for preset in chosen]
        put_json(shown[0] if name else shown)
    elif name:
        _show(chosen[0])
    else:
        _list(chosen)


def _list(presets: list[Preset]) -> None:
    """Print one paragraph a preset for people; for programs one line each, with tabs between the columns."""
    if not is_read_by_people():
        for preset in presets:
            put_block(f"{preset.name}\t{_params(preset) or '-'}\t{preset.description}\n")
        return
    width = min(console().width, _WIDTH)
    for preset in presets:
        put(Colored(preset.name, "cyan"))
        params = f"Parameters: {_params(preset)}" if preset.params else ""
        for text in filter(None, (preset.description, params)):
            for line in textwrap.wrap(text, width - 4, break_long_words=False, break_on_hyphens=False):
                put(f"    {line}")
    put("")
    put("Parameters with = are required. To see one preset in full: kakeya presets NAME")


def _params(preset: Preset) -> str:
    return " ".join(f"{name}=" if param.required else name for name, param in preset.params.items())


def _show(preset: Preset) -> None:
    out = console()
    out.soft_wrap = False
    out.print(Text(preset.name, style="bold"))
    out.print(preset.description)
    out.print()
    if preset.params:
        table = Grid("parameter", "allowed", "default", "")
        for name, param in preset.params.items():
            default = Text("required", style="yellow") if param.required else Text(str(param.default))
            table.add_row(name, param.allowed, default, param.help)
        out.print(table)
        out.print()
    whose = "programs installed on the runner" if preset.code == "installed" else "the request's own tree"
    facts = Grid(Column(), Column(overflow="fold"), show_header=False)
    facts.add_row("code", whose)
    if preset.inputs:
        facts.add_row("reads", f"*{preset.inputs.ending} below {preset.inputs.under} of the request, as data")
    facts.add_row("time limit", f"{preset.timeout_s} s")
    kinds = ", ".join(preset.kinds) or "reports of any known kind"
    facts.add_row("leaves", ", ".join(preset.collect) or "its log")
    facts.add_row("gate", f"{kinds}, checked on the machine that measured them" if preset.gated else "none")
    facts.add_row("network", "yes" if preset.network else "no")
    facts.add_row("digest", preset.digest)
    for step in preset.steps:
        facts.add_row("runs", Text(" ".join(step.argv)))
    out.print(facts)
    example = " ".join(f"-p {name}=..." for name, param in preset.params.items() if param.required)
    out.print(f"\nkakeya run {preset.name} {example} --wait".replace("  ", " "))
