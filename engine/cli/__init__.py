"""The command line ``kakeya-engine``."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from engine import install
from engine.cli.lazy import LazyGroup
from engine.errors import EngineError, ExitCode, MissingPackage

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
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, help="Show the version and the commit, and exit.",
    callback=lambda context, _, value: _show_version(context) if value and not context.resilient_parsing else None,
)  # fmt: skip
def cli() -> None:
    """Run the MLX engine: codecs, caches, models and their measurements.

    Exit codes: 0 succeeded, 1 failed, 2 usage error, 3 infrastructure problem (retry later), 70 bug, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of :class:``engine.errors.ExitCode``."""
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
    except ModuleNotFoundError as error:
        _end_without(error)
    except Exception:  # noqa: BLE001 - the one place where a bug is told from a failure
        _report_bug()
    sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)


def _end_without(error: ModuleNotFoundError) -> NoReturn:
    """End because a module is absent: a package of the extras that is not installed, or else a bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "engine") or package in sys.modules:
        _report_bug()
    missing = MissingPackage(f"the package {package} is not installed", install.how())
    _say(missing.message, missing.fix)
    sys.exit(missing.exit_code)


def _report_bug() -> NoReturn:
    """End because of the exception that is being handled."""
    sys.excepthook(*sys.exc_info())
    _say("this is a bug in kakeya-engine", "please report it with the lines above")
    sys.exit(ExitCode.BUG)


def _show_version(context: click.Context) -> None:
    from importlib import metadata

    from engine import commit

    found = commit.of()
    changes = ", with uncommitted changes" if found and found[1] else ""
    named = f"commit {found[0][:12]}{changes}" if found else "built from a folder without git history"
    click.echo(f"kakeya-engine {metadata.version('kakeya-bridge')} ({named})")
    context.exit()


def _say(message: str, fix: str) -> None:
    click.echo(f"error: {message}" + (f"; {fix}" if fix else ""), err=True)
