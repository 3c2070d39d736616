"""``kakeya-engine codec info``: the content of a file of arrays."""

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, source: Path, as_json: bool) -> None:
    """Show the arrays of SOURCE: shape, type, codec, bytes, and bits per value."""
    from engine.codec import file

    held = file.info(*file.read(source))
    rows: dict[str, dict[str, Any]] = {
        name: {
            "shape": list(array.shape),
            "dtype": array.dtype,
            "codec": f"e8v@{array.codec.bits}" if array.codec else None,
            "nbytes": array.nbytes,
            "bits_per_value": array.bits_per_value,
        }
        for name, array in held.items()
    }
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table("array", "shape", "type", "codec", "bytes", "bits/value")
    for name, row in rows.items():
        cells = (
            "x".join(map(str, row["shape"])),
            row["dtype"],
            row["codec"] or "as it is",
            str(row["nbytes"]),
        )
        shown.add_row(name, *cells, f"{row['bits_per_value']:.3f}")
    Console().print(shown)
