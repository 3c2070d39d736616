"""The command line ``kakeya-engine``."""

import sys
from collections.abc import Sequence

import click

from engine.cli.lazy import LazyGroup
from engine.errors import EngineError, ExitCode

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
    """Run the command line and exit with one of :class:`engine.errors.ExitCode`."""
    try:
        code = cli.main(args=argv, prog_name="kakeya-engine", standalone_mode=False)
    except EngineError as error:
        _say(error.message, error.fix)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    except Exception:  # noqa: BLE001 - the one place where a bug is told from a failure
        sys.excepthook(*sys.exc_info())
        _say("this is a bug in kakeya-engine", "please report it with the lines above")
        sys.exit(ExitCode.BUG)
    sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)


def _say(message: str, fix: str) -> None:
    click.echo(f"error: {message}" + (f"; {fix}" if fix else ""), err=True)
