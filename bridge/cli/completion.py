"""``kakeya completion``."""

import click
from click.shell_completion import get_completion_class

from bridge.common.cli.commands import option
from bridge.common.cli.output import put_block

PROGRAMS = ("kakeya", "kakeya-runner", "kakeya-engine")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@option("--program", click.Choice(PROGRAMS), "kakeya", help="Program to complete.")
def command(shell: str, program: str) -> None:
    """Print the completion script for a shell.

    For instance: `kakeya completion bash > ~/.local/share/bash-completion/completions/kakeya`
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows each of the choices
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    script = kind(click.Command(program), {}, program, variable).source()
    # Click's script for fish would cut a value and its description at the first comma.
    put_block(script.replace('string split ","', 'string split --max 1 ","') + "\n")
