"""The command line ``kakeya-engine``."""

import json
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from bridge.common import install, terminal
from bridge.common.errors import ExitCode, KakeyaError, UsageError
from bridge.common.lazy import LazyGroup
from bridge.common.version import version_option
from engine import commit
from engine.errors import MissingPackage

COMMANDS = {
    "bench": "Measure decoding speed, compared with mlx-lm.",
    "codec": "Measure the KV codecs.",
    "eval": "Evaluate a model: needle recall, caches at equal bits, drafter parity, restored prompts, the server.",
    "generate": "Answer or continue the text of --prompt, of --prompt-file, or of standard input.",
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
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    terminal.accept_any_text()
    try:
        code = cli.main(args=argv, prog_name="kakeya-engine", standalone_mode=False)
    except KakeyaError as error:
        _end(error, as_json=as_json)
    except click.ClickException as error:
        error.show()
        if as_json:
            _put(UsageError(error.format_message()))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):
            # Click takes the end of any file for that of the standard input.
            _report_bug(as_json=as_json)
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    except OSError as error:
        _end_for_the_system(error, as_json=as_json)
    except ModuleNotFoundError as error:
        _end_without(error, as_json=as_json)
    except Exception:  # noqa: BLE001 - the one place where a bug is told from a failure
        _report_bug(as_json=as_json)
    sys.exit(code if isinstance(code, int) else ExitCode.SUCCEEDED)


def _end_for_the_system(error: OSError, *, as_json: bool) -> NoReturn:
    """End because the system does not let a file be read or written: the disk is full, or it may not be accessed."""
    if error.errno is None:
        _report_bug(as_json=as_json)
    name = error.filename if error.filename is not None else "a file cannot be read or written"
    fix = "free some space, or choose a place that can be written"
    fault = KakeyaError(f"{name}: {error.strerror}", fix=fix, code="system")
    fault.exit_code = ExitCode.INFRASTRUCTURE
    _end(fault, as_json=as_json)


def _end_without(error: ModuleNotFoundError, *, as_json: bool) -> NoReturn:
    """End because a module is absent: a package of the extras that is not installed, or else a bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "engine") or package in sys.modules:
        _report_bug(as_json=as_json)
    _end(MissingPackage(f"the package {package} is not installed", install.how()), as_json=as_json)


def _report_bug(*, as_json: bool) -> NoReturn:
    """End because of the exception that is being handled."""
    sys.excepthook(*sys.exc_info())
    bug = KakeyaError(
        "this is a bug in kakeya-engine", fix="please report it with the lines above", code="bug"
    )
    bug.exit_code = ExitCode.BUG
    _end(bug, as_json=as_json)


def _end(error: KakeyaError, *, as_json: bool) -> NoReturn:
    """Report an error on standard error, with ``as_json`` also as JSON on standard output, and exit with its code."""
    click.echo(f"error: {error.message}" + (f"; {error.fix}" if error.fix else ""), err=True)
    if as_json:
        _put(error)
    sys.exit(error.exit_code)


def _put(error: KakeyaError) -> None:
    click.echo(json.dumps(error.as_dict()))
