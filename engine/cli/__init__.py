"""The command line ``kakeya-engine``."""

import sys
from collections.abc import Sequence

import click

from engine.cli.lazy import LazyGroup
from engine.errors import EngineError

BUG = 70
INTERRUPTED = 130

COMMANDS = {
    "bench": "engine.cli.bench:bench",
    "codec": "engine.cli.codec:codec",
    "eval": "engine.cli.eval:evaluate",
    "generate": "engine.cli.generate:generate",
    "models": "engine.cli.models:models",
    "probe": "engine.cli.probe:probe",
    "serve": "engine.cli.serve:serve",
    "train": "engine.cli.train:train",
}


@click.group(cls=LazyGroup, commands_at=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kakeya-bridge", prog_name="kakeya-engine")
def cli() -> None:
    """Run the MLX engine: codecs, caches, models and their measurements."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 usage, 70 a bug, 130 interrupted."""
    try:
        code = cli.main(args=argv, prog_name="kakeya-engine", standalone_mode=False)
    except EngineError as error:
        _say(error.message, error.fix)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception:  # noqa: BLE001 - the one place where a bug is told from a failure
        sys.excepthook(*sys.exc_info())
        _say("this is a bug in kakeya-engine", "please report it with the lines above")
        sys.exit(BUG)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str, remedy: str) -> None:
    click.echo(f"error: {message}" + (f"; {remedy}" if remedy else ""), err=True)
