"""Runs ``python -m training``."""

import sys

import click

from bridge.common.errors import KakeyaError
from training.cli import cli

if __name__ == "__main__":
    try:
        cli(prog_name="python -m training")
    except KakeyaError as error:
        click.echo(f"error: {error.message}" + (f"; {error.fix}" if error.fix else ""), err=True)
        sys.exit(error.exit_code)
