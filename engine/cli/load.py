"""``kakeya-engine load``."""

import json

import click


@click.command()
@click.option(
    "--model", metavar="MODEL", help="The target: a bundled pair, a published one, a folder or a hub id."
)
@click.option("--draft", metavar="DRAFT", help="Its drafter.")
@click.option("--files", "only_files", is_flag=True, help="Look at the files alone: nothing is loaded.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as one line of JSON.")
@click.pass_context
def load(
    ctx: click.Context, *, model: str | None, draft: str | None, only_files: bool, as_json: bool
) -> None:
    """Load models from this machine and say what is missing. Nothing is downloaded.

    Fails where one of them cannot be loaded.
    """
    from engine.models.look import look

    if model is None and draft is None:
        raise click.UsageError("name a model, a drafter or both: --model, --draft", ctx)
    found = look(model, draft, build=not only_files)
    ok = all(entry["ok"] for entry in found)
    if as_json:
        click.echo(json.dumps({"ok": ok, "models": found}))
    else:
        for entry in found:
            told = f"loaded in {entry['seconds']:.1f} s" if not only_files else "its files are there"
            click.echo(f"{entry['role']}: {entry['reference']}: {told if entry['ok'] else entry['error']}")
            if entry["remedy"]:
                click.echo(f"  {entry['remedy']}")
    if not ok:
        ctx.exit(1)
