"""``kakeya-engine models``: the pairs that go by a name, and whether a model runs on this machine."""

import json
from typing import Any, Literal

import click

from engine.errors import EngineError

FAILED = 2


@click.command()
@click.option(
    "--check", "reference", metavar="REF", help="Load this model here and run one token through it."
)
@click.option(
    "--draft", metavar="REF", help="Its drafter.  [default: the drafter that belongs to the model, if any]"
)
@click.option("--no-draft", is_flag=True, help="Check the model without a drafter.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(
    ctx: click.Context, *, reference: str | None, draft: str | None, no_draft: bool, as_json: bool
) -> None:
    """List the pairs that go by a name, or check that a model loads and runs on this machine.

    REF is a name, a folder or a hub id. The check reads the configuration, the weights and the tokenizer, runs one
    token through the model and its drafter, and downloads nothing. It exits with 2 if the model cannot run here.
    """
    if draft and no_draft:
        raise click.UsageError("--draft and --no-draft exclude each other")
    if reference is None:
        if draft or no_draft:
            raise click.UsageError("--draft and --no-draft go with --check")
        _list(as_json=as_json)
        return
    found = _checked(reference, False if no_draft else draft)
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
    else:
        _show(found)
    if not found["ok"]:
        ctx.exit(FAILED)


def _list(*, as_json: bool) -> None:
    from engine.models.names import pairs

    found = pairs()
    if as_json:
        click.echo(json.dumps({"pairs": found}, allow_nan=False))
        return
    name, channel = (max(len(pair[key]) for pair in found) for key in ("name", "channel"))
    for pair in found:
        if pair["source"] == "bundled":
            state = "bundled" if pair["here"] else "bundled, not part of this installation"
        else:
            state = "on this machine" if pair["here"] else "get it: " + " && ".join(pair["get"])
        click.echo(f"{pair['name']:{name}}  {pair['channel']:{channel}}  {state}")
    click.echo(
        "\nColumns: name, channel, state. Besides these names, --model takes a folder or a hub id of any model that "
        "mlx-lm loads."
    )


def _checked(reference: str, draft: str | Literal[False] | None) -> dict[str, Any]:
    try:
        from engine.models.check import check
    except EngineError as error:  # MLX or mlx-lm is missing: that is an answer too
        failed = {"ok": False, "target": {"id": reference}, "draft": {"id": draft} if draft else None}
        return {**failed, "error": error.message, "fix": error.remedy or None}
    return check(reference, draft)


def _show(found: dict[str, Any]) -> None:
    if not found["ok"]:
        fix = f"; {found['fix']}" if found["fix"] else ""
        click.echo(f"error: {found['error']}{fix}", err=True)
        return
    for role in ("target", "draft"):
        if part := found[role]:
            size = part["weight_bytes"] / 1e6
            click.echo(
                f"{role} {part['id']}: runs ({part['architecture']}, {part['layers']} layers, {size:.0f} MB)"
            )
