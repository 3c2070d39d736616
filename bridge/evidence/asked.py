"""Compares a step's command line with the configuration in the report that it wrote: the options must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Kind of report by command of kakeya-engine.
COMMANDS: dict[str, tuple[str, str]] = {
    "kakeya.codec-rd": ("codec", "rd"),
    "kakeya.spec-bench": ("bench", "spec"),
    "kakeya.acceptance": ("eval", "acceptance"),
    "kakeya.native": ("bench", "native"),
    "kakeya.recall": ("eval", "recall"),
    "kakeya.restored-prefill": ("eval", "restored-prefill"),
    "kakeya.verify-l": ("bench", "verify-l"),
    "kakeya.kv-quant": ("eval", "kv-quant"),
    "kakeya.parity": ("eval", "parity"),
    "kakeya.serve-conformance": ("eval", "serve-conformance"),
}
# What `--embed-scale both` adds to the drafters.
RESCALED = "rescaled"
# Options that affect no figure, and options with paths on the host, which the answer does not show.
_PLACES = (
    "out",
    "json",
    "model",
    "draft",
    "restorer",
    "text",
    "prompts",
    "resume",
    "task",
    "least",
    "needles",
)
# What the engine may choose if an option is ``auto``; the configuration tells its choice.
CHOSEN = {"layers": ("full", "sliding")}
# A block of one row has no drafts, so comparing drafters needs at least two rows.
_TWO_ROWS = "2"


def options(argv: Sequence[str], command: tuple[str, str]) -> dict[str, str | bool] | None:
    """Return the options of a command line by name; None if it calls another command."""
    at = next((i for i in range(len(argv) - 1) if tuple(argv[i : i + 2]) == command), None)
    if at is None:
        return None
    found: dict[str, str | bool] = {}
    rest = [*argv[at + 2 :]]
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            continue
        name = flag[2:].replace("-", "_")
        if equals:
            found[name] = value
        elif rest and not rest[0].startswith("--"):
            found[name] = rest.pop(0)
        else:
            found[name.removeprefix("no_")] = not name.startswith("no_")
    return found


def unlike(report: Mapping[str, Any], argvs: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the differences between a report's configuration and the command line of the step that wrote it.

    Yields nothing unless exactly one step writes reports of this kind in a comparable way.
    """
    command = COMMANDS.get(str(report.get("kind")))
    asked = [found for argv in argvs if command and (found := options(argv, command)) is not None]
    told = [[*_differences(report, one)] for one in asked]
    if told and all(told):
        yield min(told, key=len)[0]


def _differences(report: Mapping[str, Any], asked: Mapping[str, str | bool]) -> Iterator[str]:
    config = report.get("config")
    if not isinstance(config, dict):
        return
    for name, given in asked.items():
        if name in _PLACES:
            continue
        more = f",{RESCALED}" if name == "drafters" and asked.get("embed_scale") == "both" else ""
        value = f"{given}{more}" if more else given
        if name == "max_prompts" and name not in config:
            yield from _more_prompts(report, str(value))
            continue
        place = "block" if name == "block_size" and "block" in config else name
        one_row = name == "block_size" and report.get("kind") == "kakeya.parity" and value == "1"
        wanted = _TWO_ROWS if one_row else value
        if value == "auto" and config.get(name) in CHOSEN.get(name, ()):
            continue
        if place in config and not _same(config[place], wanted):
            yield f"--{name.replace('_', '-')} was {value}, and the report's configuration says {config[place]!r}"


def _more_prompts(report: Mapping[str, Any], most: str) -> Iterator[str]:
    counts: dict[str, int] = {}
    prompts = report.get("prompts")
    for prompt in prompts if isinstance(prompts, list) else []:
        workload = str(prompt.get("workload")) if isinstance(prompt, dict) else ""
        counts[workload] = counts.get(workload, 0) + 1
    for workload, count in counts.items():
        if most.isdigit() and count > int(most):
            yield f"--max-prompts was {most}, and {workload} has {count} prompts"
        elif most.isdigit() and count < int(most) and _is_bundled(report, workload) and count < BUNDLED_SET:
            yield f"--max-prompts was {most}, and {workload} has {count} of {BUNDLED_SET} prompts"


# Prompts of each set that comes with the engine.
BUNDLED_SET = 50


def _is_bundled(report: Mapping[str, Any], workload: str) -> bool:
    told = report.get("workloads")
    one = told.get(workload) if isinstance(told, dict) else None
    return isinstance(one, dict) and one.get("source") == "bundled"


def _same(given: object, asked: str | bool) -> bool:
    """Return whether an option in a report equals the text on the command line."""
    if isinstance(asked, bool) or isinstance(given, bool):
        return given is asked
    if isinstance(given, list):
        return [_plain(one) for one in given] == [_plain(one) for one in asked.split(",")]
    return _plain(given) == _plain(asked)


def _plain(value: object) -> object:
    try:
        return float(str(value))
    except ValueError:
        return str(value)
