"""``kakeya presets``."""

import textwrap

import click
from rich.table import Column
from rich.text import Text

from bridge.cli.common import all_presets_of, complete_preset, remote_option
from bridge.common.cli.commands import json_option
from bridge.common.cli.output import Colored, is_read_by_people, put, put_block, put_json, say
from bridge.common.cli.screen import Grid, console
from bridge.errors import one_line
from bridge.presets import Preset, Presets, find_preset
from bridge.presets.announced import runners_of

_WIDTH = 100


@click.command()
@click.argument("name", required=False, shell_complete=complete_preset)
@remote_option
@json_option
@click.pass_context
def command(context: click.Context, name: str | None, *, as_json: bool) -> None:
    """List the available jobs, or show one.

    They come from KAKEYA_PRESETS, .kakeya/presets/ here, then on the remote's default branch, and the installation.
    """
    presets = all_presets_of(context)
    for note in presets.notes:
        say(f"warning: {note}")
    for broken, error in presets.broken.items():
        say(f"warning: invalid preset ignored ({presets.sources.get(broken, '')}): {error.message}")
    chosen = [find_preset(presets, name)] if name else list(presets.values())
    if as_json:
        shown = [_as_dict(preset, presets) for preset in chosen]
        put_json(shown[0] if name else shown)
    elif name:
        _show(chosen[0], presets)
    else:
        _list(chosen, presets)


def _as_dict(preset: Preset, presets: Presets) -> dict[str, object]:
    runners = [
        {
            "id": offer.runner,
            "same": offer.digest == preset.digest,
            "signed": offer.signed,
            **({"bus": offer.bus} if offer.bus else {}),
        }
        for offer in presets.offers.get(preset.name, [])
    ]
    facts = {"source": presets.sources[preset.name], "announced": preset.name in presets.announced}
    if preset.cannot_show:
        facts["cannot_show"] = preset.cannot_show
    return {**preset.model_dump(mode="json"), "digest": preset.digest, **facts, "runners": runners}


def _list(chosen: list[Preset], presets: Presets) -> None:
    """Print a paragraph for each preset; for programs, a line for each, with tabs between the columns."""
    if not is_read_by_people():
        for preset in chosen:
            source, runners = presets.sources[preset.name], runners_of(presets, preset.name)
            cells = (preset.name, _params(preset) or "-", preset.description, source, runners or "-")
            put_block("\t".join(one_line(cell) for cell in cells) + "\n")
        return
    width = min(console().width, _WIDTH)
    for preset in chosen:
        put(Colored(preset.name, "cyan"))
        params = f"Parameters: {_params(preset)}" if preset.params else ""
        source = f"Source: {presets.sources[preset.name]}"
        runners = runners_of(presets, preset.name)
        source += f". Offered by: {runners}" if runners else ""
        for text in filter(None, (one_line(preset.description), params, source)):
            for line in textwrap.wrap(text, width - 4, break_long_words=False, break_on_hyphens=False):
                put(f"    {line}")
    put("")
    put("Parameters with = are required. To see one preset in full: kakeya presets NAME")


def _params(preset: Preset) -> str:
    return " ".join(f"{name}=" if param.required else name for name, param in preset.params.items())


def _show(preset: Preset, presets: Presets) -> None:
    out = console()
    out.soft_wrap = False
    out.print(Text(preset.name, style="bold"))
    out.print(Text(one_line(preset.description)))
    out.print()
    if preset.params:
        table = Grid("parameter", "allowed", "default", "")
        for name, param in preset.params.items():
            default = (
                Text("required", style="yellow") if param.required else Text(one_line(str(param.default)))
            )
            table.add_row(name, Text(one_line(param.allowed)), default, Text(one_line(param.help)))
        out.print(table)
        out.print()
    whose = "programs installed on the runner" if preset.code == "installed" else "the request's own tree"
    facts = Grid(Column(), Column(overflow="fold"), show_header=False)
    facts.add_row("source", Text(one_line(presets.sources[preset.name])))
    if runners := runners_of(presets, preset.name):
        facts.add_row("offered by", Text(one_line(runners)))
    facts.add_row("code", whose)
    if preset.inputs:
        facts.add_row("reads", f"*{preset.inputs.ending} below {preset.inputs.under} of the request, as data")
    facts.add_row("time limit", f"{preset.timeout_s} s")
    kinds = ", ".join(preset.kinds) or "reports of any known kind"
    facts.add_row("collects", ", ".join(preset.collect) or "its log")
    if preset.leaves:
        facts.add_row("leaves", Text(", ".join(preset.leaves)))
    facts.add_row("gate", f"{kinds}, checked on the machine that measured them" if preset.gated else "none")
    if preset.cannot_show:
        facts.add_row("cannot show", Text(one_line(preset.cannot_show)))
    facts.add_row("network", "yes" if preset.network else "no")
    facts.add_row("digest", preset.digest)
    for step in preset.steps:
        facts.add_row("runs", Text(one_line(" ".join(step.argv))))
    out.print(facts)
    example = " ".join(f"-p {name}=..." for name, param in preset.params.items() if param.required)
    out.print(f"\nkakeya run {preset.name} {example} --wait".replace("  ", " "))
