"""The command line ``kakeya-engine``."""

from bridge.common.cli.startup import QuietInterrupt

with QuietInterrupt():
    import os
    import sys
    from collections.abc import Sequence
    from typing import NoReturn

    import click

    from bridge.common.cli.commands import CONTEXT, LazyGroup
    from bridge.common.cli.program import run_program
    from bridge.common.version import version_option
    from engine import commit

COMMANDS = {
    "bench": "Measure decoding speed, compared with mlx-lm.",
    "chat": "Chat with a model in the terminal.",
    "codec": "Measure the KV codecs.",
    "eval": "Evaluate a model: needle recall, caches at equal bits, drafter parity, restored prompts, the server.",
    "generate": "Answer or continue the text of --prompt, of --prompt-file, or of standard input.",
    "models": "List the model pairs that have a name, or check that a model runs on this machine.",
    "probe": "Show the machine, MLX and the BLAS in use, and check a small computation.",
    "serve": "Serve models over OpenAI's HTTP API.",
    "train": "Train a drafter or restorer for any target.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS, context_settings=CONTEXT)
@version_option("kakeya-engine", commit.of)
def cli() -> None:
    """Run the MLX engine: codecs, caches, models and their measurements.

    Exit codes: 0 succeeded, 1 failed, 2 usage error, 3 infrastructure problem (retry later), 70 bug, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line."""
    try:
        run_program(cli, "kakeya-engine", argv)
    except SystemExit as ended:
        if argv is None and "engine.cli.chat.conversation" in sys.modules:
            # After the server's engine was used, Python's own cleanup can abort: see engine.serve.shutdown.
            os._exit(int(ended.code or 0))
        raise
