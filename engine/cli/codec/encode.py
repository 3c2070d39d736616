"""``kakeya-engine codec encode``: arrays to packed rows."""

from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--bits", type=click.Choice(["2.25", "3.25", "4.25", "5.25", "6.25"]), default="4.25", show_default=True
)
@click.option("--effort", type=click.Choice(["fast", "normal", "best"]), default="normal", show_default=True)
def command(*, source: Path, target: Path, bits: str, effort: str) -> None:
    """Encode the arrays of SOURCE (.npy or .safetensors) along their last axis into TARGET (.safetensors)."""
    from engine.codec import file
    from engine.errors import BadInput

    if target.suffix != ".safetensors":
        raise BadInput(f"{target} is not .safetensors", "packed rows and their codec need one")
    arrays, _ = file.read(source)
    packed, metadata = file.encode(arrays, float(bits), effort)
    file.write(target, packed, metadata)
    before, after = (sum(x.nbytes for x in held.values()) for held in (arrays, packed))
    click.echo(f"wrote {target}: {before} bytes became {after}", err=True)
