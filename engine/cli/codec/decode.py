"""``kakeya-engine codec decode``: packed rows to arrays."""

from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def command(*, source: Path, target: Path) -> None:
    """Decode SOURCE, written by `encode`, into TARGET (.npy for one array, or .safetensors)."""
    from engine.codec import file

    arrays, metadata = file.read(source)
    decoded = file.decode(arrays, metadata)
    file.write(target, decoded)
    click.echo(f"wrote {target}: {len(decoded)} arrays", err=True)
