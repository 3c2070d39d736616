"""Compares a step's command line with the options in the report that it wrote."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.reports.cache_spec import canonical, split_list
from bridge.reports.kinds import COMMANDS

# Options that name files or folders on the host, which an answer does not show.
_HOST_PLACES = ("out", "model", "draft", "restorer", "text", "prompts", "resume")
# An option with this value lets the engine choose.
_CHOICE = "auto"


def options_of(argv: Sequence[str], command: tuple[str, ...]) -> dict[str, str | bool] | None:
    """Return the options of a command line by name; None if the command line calls another command."""
    at = next((i for i in range(len(argv) - 1) if tuple(argv[i : i + 2]) == command), None)
    if at is None:
        return None
    options: dict[str, str | bool] = {}
    rest = [*argv[at + 2 :]]
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            continue
        name = flag[2:].replace("-", "_")
        if equals:
            options[name] = value
        elif rest and not rest[0].startswith("--"):
            options[name] = rest.pop(0)
        else:
            options[name.removeprefix("no_")] = not name.startswith("no_")
    return options


def config_mismatches(report: Mapping[str, Any], argvs: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the first difference between a report's configuration and the options of the step that wrote it.

    An option is compared only if the configuration has a single value of the same form for it. Yields nothing if one of
    the steps could have written the report.
    """
    command, config = COMMANDS.get(str(report.get("kind")), ()), report.get("config")
    if not isinstance(config, dict):
        return
    steps = [options for argv in argvs if (options := options_of(argv, command)) is not None]
    mismatches = [[*_mismatches(config, options)] for options in steps]
    if mismatches and all(mismatches):
        yield min(mismatches, key=len)[0]


def _mismatches(config: Mapping[str, Any], options: Mapping[str, str | bool]) -> Iterator[str]:
    left_out = config.get("left_out")
    reasons = list(left_out) if isinstance(left_out, dict) else []
    for name, argument in options.items():
        if name in _HOST_PLACES or name not in config or argument == _CHOICE:
            continue
        configured = config[name]
        if not _same([*configured, *reasons] if isinstance(configured, list) else configured, argument):
            yield f"--{name.replace('_', '-')} was {argument}, and the report's configuration says {config[name]!r}"


def _same(configured: object, argument: str | bool) -> bool:
    """Return whether an option in a report can be the text on the command line."""
    if isinstance(argument, bool) or isinstance(configured, bool):
        return configured is argument
    if configured is None or isinstance(configured, dict):
        return True
    if isinstance(configured, list):
        wanted = {_plain(item) for item in split_list(argument)}
        return wanted <= {_plain(item) for item in configured}
    return _plain(configured) == _plain(argument)


def _plain(value: object) -> object:
    try:
        return float(str(value))
    except ValueError:
        return canonical(str(value))
