"""Shared by the subcommands: the client, the request argument, and how a state is printed."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.bus import wire
from bridge.bus.wire import State
from bridge.buses import Answer, Buses, silent
from bridge.client import Run
from bridge.common import sanitize
from bridge.common.cli.commands import REFERENCE, Duration, Percentage, flag, option
from bridge.common.cli.output import Colored, put_block, put_json, say
from bridge.errors import ExitCode, UsageError, one_line
from bridge.presets import Presets, find_presets
from bridge.reports.compared import Compared
from bridge.reports.readable import Readable
from bridge.requests import request_commit
from bridge.requests.liveness import shown
from bridge.requests.status import Event, Status
from bridge.show.forms.words import color
from bridge.verify.answer_checks import gaps, is_comparison
from bridge.verify.public_keys import Pin, ReportKeys, find_pin
from bridge.verify.verdict import Conclusion, gate_lines, verified

if TYPE_CHECKING:
    from rich.text import Text

    from bridge.system.git import Git

# How many unsent files are named.
_NAMED = 5

timeout_option = option(
    "--timeout", Duration(), metavar="DUR", help="Stop waiting after this long (90s, 15m, 2h); the job continues."
)  # fmt: skip
raw_option = flag("--raw", "Show the log's lines of digests too, which only the gate reads.")


def _store_in_context(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def store(context: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.obj[name] = value

    return store


remote_option = option(
    "--remote -R", REFERENCE, metavar="NAME", expose_value=False, callback=_store_in_context("remote"),
    help="The bus: a remote's name or URL.  [default: git's kakeya.bus, else origin]",
)  # fmt: skip
key_option = option(
    "--key", REFERENCE, metavar="FILE", expose_value=False, callback=_store_in_context("public_key"),
    help="File with the runner's public key.  [default: the pinned key]",
)  # fmt: skip


def request_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument for the request, and the option for its remote."""
    return click.argument("request", required=False)(remote_option(function))


def complete_preset(context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a preset."""
    return [name for name in presets_of(context, ask=False) if name.startswith(incomplete)]


def complete_param(context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete ``name=`` with the parameters of the preset on the command line."""
    presets = presets_of(context, ask=False)
    # While an option lacks its value, click does not parse the arguments before it.
    words = [context.params.get("preset"), *context.args]
    named = [presets[word] for word in words if isinstance(word, str) and word in presets]
    return [f"{name}=" for preset in named for name in preset.params if name.startswith(incomplete)]


param_option = option(
    "-p --param params", multiple=True, metavar="K=V", shell_complete=complete_param,
    help="Set a parameter of the preset; repeatable.",
)  # fmt: skip


def buses_of(context: click.Context, **options: Any) -> Buses:
    """Return the buses of the repository that was named, or the one that was named."""
    # A shell that completes a word runs no command, so nothing has filled the settings.
    settings = context.ensure_object(dict)
    settings.setdefault("repo", context.find_root().params.get("repo") or ".")
    options = {"public_key": settings.get("public_key"), **options}
    return Buses.of(settings["repo"], settings.get("remote"), **options)


def pin_of(context: click.Context) -> Pin | None:
    """Return the keys that are pinned here for any bus, also outside of any repository."""
    buses = _buses_or_none(context)
    return buses.pin() if buses else find_pin(None, "", context.obj.get("public_key"))


def all_presets_of(context: click.Context) -> Presets:
    """Return the presets that can be requested from here, including those that runners announce."""
    buses = _buses_or_none(context)
    return buses.all_presets() if buses else presets_of(context)


def presets_of(context: click.Context, named: Path | None = None, *, ask: bool = True) -> Presets:
    """Return the presets that can be asked for from here, also outside of any repository.

    ``named`` is a folder to use instead of the one that KAKEYA_PRESETS names.
    """
    buses = _buses_or_none(context)
    git, remote = (buses.first.client.git, buses.first.remote) if buses else (None, "")
    return find_presets(git, remote, named, ask=ask)


def report_keys_of(context: click.Context) -> ReportKeys:
    """Return the keys that may vouch for reports here, also outside of any repository."""
    buses, key = _buses_or_none(context), context.obj.get("public_key")
    return ReportKeys.find(None, "", key) if buses is None else buses.report_keys(key)


def _buses_or_none(context: click.Context) -> Buses | None:
    try:
        buses = buses_of(context)
        # There must be a repository.
        _ = buses.first.client
    except UsageError:
        return None
    return buses


def answer_folder(request: str | None) -> Path | None:
    """Return the folder that stands for a request: one with an answer's files, or any whose name is a path."""
    if not request:
        return None
    folder = Path(request)
    is_path = request.startswith(("/", "./", "../")) or request.endswith("/")
    return folder if folder.is_dir() and (is_path or (folder / wire.FOLDER).is_dir()) else None


def run_of(context: click.Context, request: str | None) -> Run:
    """Return the request with a name (a branch, a nonce or a part of either); by default the last one sent."""
    return buses_of(context).find(request)


def say_silent(answers: Iterable[Answer[Any]]) -> None:
    """Print the buses that could not be asked, and why."""
    for label, reason in silent(answers):
        say(f"the bus {label} is left out: {reason}")


def untracked_note(git: "Git") -> str:
    """Return the sentence that names the untracked files, which a snapshot leaves out; empty if there are none."""
    left_out = request_commit.untracked(git)
    more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    some = one_line(", ".join(left_out[:_NAMED])) + more
    return (
        f"note: untracked files were not sent: {some}. To send a file, `git add` it first" if left_out else ""
    )


def with_bus(bus: str | None, row: dict[str, object]) -> dict[str, object]:
    """Return an object of ``--json`` with its bus, if there are several."""
    return {"bus": bus, **row} if bus else row


def state_text(shown: Conclusion) -> "Text":
    """Return the outcome of a request, or its state so far, in its colour."""
    return _colored(shown.word, shown.grade)


def verdict_text(shown: Conclusion) -> "Text":
    """Return the verdict on an answer with its voucher, or the voucher alone, in the verdict's colour."""
    return _colored(shown.judged or ("" if shown.is_refused else shown.voucher), shown.verdict_grade)


def _colored(word: str, grade: str) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - slow to import, and a request is sent without it

    return Text(word, style=color(grade))


def follow(
    run: Run, timeout: timedelta | None, *, as_json: bool, logs: bool = True, raw: bool = False
) -> Status:
    """Show a request's states and log until it ends, and return its last status.

    States go to standard error and the log to standard output; with ``as_json`` both are NDJSON on standard output.
    With ``raw`` the log keeps its lines of digests.
    """
    try:
        return _follow(run, timeout, as_json=as_json, logs=logs, raw=raw)
    except KeyboardInterrupt:
        say("")
        say("the request continues on the remote")
        say(f"next: kakeya wait {run.branch}, or kakeya cancel {run.branch}")
        raise


def _follow(run: Run, timeout: timedelta | None, *, as_json: bool, logs: bool, raw: bool) -> Status:
    # This import is slow. The request is already sent, and there is time while the runner works.
    from bridge.verify import check as _check  # noqa: F401, PLC0415

    last: Status | None = None
    # The end of the log so far, if a workflow command may begin there.
    pending = ""
    progress, people = Progress(), Readable()
    for event in run.follow(None if timeout is None else timeout.total_seconds()):
        if as_json:
            put_json(with_bus(run.bus, event_dict(event)))
        elif event.note:
            say(f"  {event.note}")
        else:
            is_new = last is None or (last.state, last.detail) != (event.status.state, event.status.detail)
            # The log that comes with a state was written in it, but an answer's end stands after its log.
            if is_new and not event.status.state.is_final:
                _announce(event.status)
            if logs and event.log:
                text = pending + sanitize.block(event.log if raw else people.add(event.log))
                pending = sanitize.unfinished_command(text)
                put_block(text.removesuffix(pending))
            elif event.log:
                progress.show(event.log)
            if is_new and event.status.state.is_final:
                _announce(event.status)
        last = event.status
    put_block(pending + sanitize.block(people.end()))
    assert last is not None  # noqa: S101 - a request has at least one state
    return last


def event_dict(event: Event) -> dict[str, object]:
    """Return an event as the object of one line of NDJSON."""
    kind = "note" if event.note else "log" if event.log else "state"
    return {"event": kind, "log": event.log, "note": event.note, **event.status.as_dict()}


class Progress:
    """Shows the last line of a log now and then, if the log is not shown in full."""

    _EVERY_S = 5.0

    def __init__(self) -> None:
        self._last = -math.inf
        self._people = Readable()

    def show(self, log: str) -> None:
        """Show the last line of a new piece of log, unless one was shown a moment ago."""
        lines = [line for line in self._people.add(log).split("\n") if line.strip()]
        if lines and time.monotonic() - self._last >= self._EVERY_S:
            self._last = time.monotonic()
            say(f"  {shown(lines[-1])}")


def _announce(status: Status) -> None:
    by = f" by {status.runner}" if status.runner and status.state is State.CLAIMED else ""
    shown = status.shown
    say(Colored(shown.word, color(shown.grade)), by, f": {status.detail}" if status.detail else "")


_NEXT_STEP = {
    State.GATE_REJECTED: "verify",
    State.GATE_INCOMPLETE: "verify",
    State.SUCCEEDED: "fetch",
    State.FAILED: "logs",
    State.TIMED_OUT: "logs",
}


slower_option = option(
    "--fail-if-slower slower", Percentage(), metavar="PERCENT",
    help="Exit with 5 if a comparison is surely worse by more than this, such as 5%.",
)  # fmt: skip


def slowdown_code(compared: Compared | None, most: float, branch: str) -> int:
    """Return the exit code of a comparison that holds: 5 if the candidate is worse by more than ``most``, and say so.

    Raises:
        UsageError: the answer compares nothing.
    """
    if compared is None:
        fix = "Ask for a comparison: kakeya run PRESET --against REF"
        raise UsageError(f"the answer of {branch} compares nothing, so it cannot be slower", fix=fix)
    if not compared.is_worse_than(most):
        return 0
    say(f"--fail-if-slower: at least {compared.worse.low:.4f} times as slow; {1 + most:g} times are allowed")
    return int(ExitCode.GATE_REJECTED)


def finish(run: Run, status: Status, *, as_json: bool, slower: float | None = None) -> int:
    """Verify the answer, print the result and the possible next steps, and return the exit code.

    With ``slower``, a candidate that is worse by more than that share ends with the code of rejected reports.
    """
    outcome = outcome_of(run, status, slower)
    code = outcome.code
    if as_json:
        put_json({"event": "answer", "branch": run.branch, **outcome.fields})
        return code
    for line in outcome.lines:
        say(line)
    is_slow = slower is not None and code == ExitCode.GATE_REJECTED
    step = "report" if is_slow else "verify" if code != status.exit_code else _NEXT_STEP.get(status.state)
    if step:
        say(f"next: kakeya {step} {status.branch}")
    return code


@dataclass(frozen=True)
class Outcome:
    """What a request came to: the exit code, the fields for ``--json``, the lines for people, and the conclusion."""

    code: int
    fields: Mapping[str, object]
    lines: Sequence[str]
    shown: Conclusion


def outcome_of(run: Run, status: Status, slower: float | None) -> Outcome:
    """Verify an answer, and return what it came to, with the exit code 1 if it does not hold."""
    report = run.verify() if status.answered else None
    result = report.result if report else None
    holds = report.holds if report else None
    shown = report.conclusion if report else status.shown
    gate = result.gate if result and (holds or not (result.gate and result.gate.accepted)) else None
    code = int(shown.exit_code or 0)
    compared = run.client.comparison(run.branch) if result and holds and is_comparison(result) else None
    if code == 0 and slower is not None:
        code = slowdown_code(compared, slower, run.branch)
    text = verified(report) if report else "no runner had taken it, so there is no answer to verify"
    lacks = gaps(result) if result else []
    fields: dict[str, object] = {
        "state": shown.state, "exit_code": code, "holds": holds, "signed": report.signed if report else None,
        "verified": text, "reason": result.reason.model_dump(mode="json") if result else None,
        "gate": gate.model_dump(mode="json") if gate else None, "conclusion": shown.as_dict(),
        **({"gaps": lacks} if report else {}), **({"comparison": compared.as_dict()} if compared else {}),
    }  # fmt: skip
    lines = [text, *(f"note: {gap}" for gap in lacks)]
    if gate and holds:
        for i, (kind, words) in enumerate(gate_lines(gate, shown)):
            lines.append(
                f"gate: {kind}: {words}" if i == 0 else f"  {kind} {words}" if kind else f"    {words}"
            )
    lines += [f"compared: {compared.text}"] if compared else []
    return Outcome(code, fields, lines, shown)
