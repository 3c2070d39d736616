"""``kakeya report``."""

from pathlib import Path

import click

from bridge.cli.common import answer_folder, buses_of, key_option, pin_of, presets_of, remote_option
from bridge.cli.groups import named_group
from bridge.common.cli.commands import FILE, PATH, flag, json_option, option
from bridge.common.cli.output import put_block, put_json, say
from bridge.common.cli.screen import console
from bridge.errors import ExitCode, UsageError
from bridge.show.build import view_of
from bridge.show.forms.markdown import markdown
from bridge.show.forms.templates import page
from bridge.show.forms.terminal import show
from bridge.show.source import Source, from_branch, from_folder


@click.command()
@click.argument("requests", nargs=-1, metavar="[RUN]...")
@option(
    "--from folders", PATH, multiple=True, metavar="DIR",
    help="Read a folder that `kakeya fetch` wrote instead; repeatable.",
)  # fmt: skip
@option(
    "--out", FILE, metavar="FILE",
    help="Write a self-contained HTML page (with --markdown: Markdown) to FILE.",
)  # fmt: skip
@flag("--markdown as_markdown", "Write Markdown, for instance for a pull request comment.")
@remote_option
@key_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    requests: tuple[str, ...],
    folders: tuple[Path, ...],
    out: Path | None,
    *,
    as_markdown: bool,
    as_json: bool,
) -> int:
    """Show a run's results and evidence, or compare several runs.

    RUN is a branch, a nonce or a part of either, a sweep's group, or an answer's folder; by default what was sent last
    from this repository. Every answer is verified first. Exits with 0 whatever the job's own outcome, and with 1 if an
    answer fails verification; the answer is then shown with a warning.
    """
    if as_markdown and as_json and not out:
        raise UsageError("--markdown and --json both go to standard output", fix="Name a file with --out.")
    sources = _sources(context, requests, folders)
    view = view_of(sources)
    text = markdown(view) if as_markdown else page(view) if out else ""
    if out:
        _write(out, text)
    if as_json:
        put_json(view.as_dict())
    elif not out and as_markdown:
        put_block(text)
    elif not out:
        screen = console()
        screen.soft_wrap = False
        show(view, screen)
    broken = [source.name for source in sources if not source.holds]
    for name in broken:
        say(f"this answer failed verification: {name}")
    return ExitCode.FAILED if broken else ExitCode.SUCCEEDED


def _sources(context: click.Context, requests: tuple[str, ...], folders: tuple[Path, ...]) -> list[Source]:
    sources: list[Source] = []
    named = {name: folder for name in requests if (folder := answer_folder(name))}
    requests, folders = tuple(name for name in requests if name not in named), (*named.values(), *folders)
    if requests or not folders:
        buses = buses_of(context)
        for name in requests or (None,):
            if group := named_group(context, name):
                sources += group.sources()
            else:
                run = buses.find(name)
                sources.append(from_branch(run.client, run.branch))
    if folders:
        pin = pin_of(context)
        presets = presets_of(context)
        sources += [from_folder(folder, pin, presets) for folder in folders]
    return sources


def _write(out: Path, text: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {out}: {error.strerror}", fix="Name another file with --out."
        ) from error
    say(f"wrote {out}")
