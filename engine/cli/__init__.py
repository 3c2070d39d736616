"""The command line ``kakeya-engine``."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from bridge.common import install
from bridge.common.errors import ExitCode, KakeyaError
from bridge.common.lazy import LazyGroup
from bridge.common.version import version_option
from engine import commit
from engine.errors import MissingPackage

COMMANDS = {
    "bench": "Measure decoding speed, compared with mlx-lm.",
    "codec": "Measure the KV codecs.",
    "eval": "Evaluate a model: needle recall, caches at equal bits, drafter parity, restored prompts, the server.",
    "generate": "Continue the text of --prompt, of --prompt-file, or of standard input.",
    "models": "List the model pairs that have a name, or check that a model runs on this machine.",
    "probe": "Show the machine, MLX and the BLAS in use, and check a small computation.",
    "serve": "Serve models over OpenAI's HTTP API.",
    "train": "Train a drafter or restorer for any target.",
}


@click.group(
    cls=LazyGroup, package=__name__, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@version_option("kakeya-engine", commit.of)
def cli() -> None:
    """Run the MLX engine: codecs, caches, models and their measurements.

    Exit codes: 0 succeeded, 1 failed, 2 usage error, 3 infrastructure problem (retry later), 70 bug, 130 interrupted.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of :class:``bridge.common.errors.ExitCode``."""
    try:
        code = cli.main(args=argv, prog_name="kakeya-engine", standalone_mode=False)
    except KakeyaError as error:
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


def _say(message: str, fix: str | None) -> None:
    click.echo(f"error: {message}" + (f"; {fix}" if fix else ""), err=True)
