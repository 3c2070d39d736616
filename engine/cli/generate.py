"""``kakeya-engine generate``: prints text from a model while it is decoded."""

import json
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bridge.common.cli.commands import EXISTING_FILE, Number, flag, option
from bridge.common.cli.output import is_read_by_people
from engine.cli import on_cluster, prompts
from engine.cli import options as shared
from engine.cli.types import CACHE_SPEC

ROLLBACKS = ("auto", "late", "trim", "carry")
LIVE_EVERY = 0.2  # seconds


@click.command()
@shared.model
@shared.draft
@flag("--no-draft", "Decode without a draft model.")
@option("--prompt", help="The text: a user's message for a chat model, otherwise a text to continue.")
@option("--system", help="System message before the prompt.")
@flag("--raw", "Continue the text itself, even with a chat model.")
@option("--prompt-file", EXISTING_FILE, help="File with the text, in place of --prompt.")
@option("--max-tokens", click.IntRange(1, 1 << 20), 256, help="Maximum tokens to decode.")
@option("--temperature", Number(0, 100), 0.0, show_default="greedy", help="Sampling temperature.")
@option(
    "--top-p",
    Number(0, 1, min_open=True),
    1.0,
    show_default="all",
    help="Sample from the likeliest tokens with this probability together.",
)
@option("--top-k", click.IntRange(0), 0, show_default="all", help="Sample from the N likeliest tokens.")
@option(
    "--min-p",
    Number(0, 1),
    0.0,
    show_default="all",
    help="Sample from tokens with this share of the largest probability.",
)
@option("--seed", click.IntRange(0, 2**63 - 1), help="Seed that makes sampling repeatable.")
@option("--stop", multiple=True, help="Stop before this text; repeatable.")
@option("--block-size", click.IntRange(1, 256), help="Tokens verified per pass; 1: no drafts.")
@option("--kv", CACHE_SPEC, "raw", help="Cache spec: raw, e8v@4.25, affine@4g64, ...")
@option(
    "--rollback", click.Choice(ROLLBACKS), "auto", help="How rejected drafts are removed from the caches."
)
@option("--lookup/--no-lookup", bool, True, help="Also draft by prompt lookup.")
@option("--adaptive/--no-adaptive", bool, True, help="Draft only if it is faster.")
@on_cluster.options
@flag("--json as_json", "Print a JSON object per step, then totals.")
def command(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    system: str | None,
    raw: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer or continue the text of --prompt, of --prompt-file, or of standard input.

    A model with a chat template answers the text as a user's message. Other models, and all models with --raw, continue
    it.

    Prints the text to standard output as it is decoded, and figures to standard error. A verify step is one forward
    pass of the model over several drafts; its token count includes the model's own token. Ctrl-C stops and prints
    the figures so far.
    """
    if options["draft"] and options["no_draft"]:
        raise click.UsageError("--draft and --no-draft exclude each other")
    if system is not None and raw:
        raise click.UsageError("--system and --raw exclude each other")
    text = _prompt(prompt, prompt_file)
    if on_cluster.is_chosen(options):
        on_cluster.generate(text, system=system, raw=raw, as_json=as_json, **options)
        return
    from engine.cache import make_caches
    from engine.dflash import Stats, stream_generate
    from engine.dflash.step import AcceptanceWatch
    from engine.live_bytes import live_bytes
    from engine.models import load
    from engine.models.agreement import measure_agreement

    names = ("model", "draft", "no_draft", "dtype", "kv")
    name, drafter, no_draft, dtype, kv = (options.pop(each) for each in names)
    pair = load(name, False if no_draft else drafter, dtype=dtype)
    chat = pair.chats and not raw
    if system is not None and not chat:
        raise click.UsageError(f"{pair.name} has no chat template, so --system has nowhere to go")
    start = _turns(pair.tokenizer, text, system) if chat else text
    caches, stats, watch = make_caches(pair.target, kv), Stats(), AcceptanceWatch()
    sizes = {name: options[name] for name in ("lookup", "block_size")}
    agreement = measure_agreement(pair.target, pair.draft, **sizes)
    show = _Lines() if as_json else _Text(stats)
    steps = stream_generate(pair.target, pair.draft, pair.tokenizer, start, caches=caches, **options)

    def summary() -> dict[str, Any]:
        about = {"model": pair.name, "chat_template": chat, "kv": kv, "cache_bytes": live_bytes(caches)}
        return {**about, **stats.as_dict(), "agreement": agreement.as_dict() if agreement else None}

    warning = None
    try:
        with closing(steps):
            for step in steps:
                show.step(stats.add(step))
                warning = watch.add(step) or warning
    except KeyboardInterrupt:
        if stats.steps:
            show.end({**summary(), "finish_reason": "interrupted"})
        raise
    show.end(summary())
    if warning:
        click.echo(f"warning: {warning}", err=True)


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt is not None and prompt_file is not None:
        raise click.UsageError("--prompt and --prompt-file exclude each other")
    if prompt is not None:
        return prompt
    if prompt_file is None and prompts.is_typed():
        raise click.UsageError("nothing to continue: give --prompt, --prompt-file or standard input")
    return prompts.from_file(prompt_file) if prompt_file else prompts.from_stdin()


def _turns(tokenizer: Any, text: str, system: str | None) -> list[int]:
    """Return the token ids of a conversation that the model has to answer."""
    from engine.tokens import encode_chat

    turns = [{"role": "system", "content": system}] if system is not None else []
    return encode_chat(tokenizer, [*turns, {"role": "user", "content": text}])


class _Lines:
    """A JSON object a line."""

    def step(self, step: Any) -> None:
        click.echo(json.dumps({"event": "step", **asdict(step)}, allow_nan=False))

    def end(self, figures: dict[str, Any]) -> None:
        click.echo(json.dumps({"event": "done", **figures}, allow_nan=False))


class _Text:
    """Prints the text, and figures meanwhile unless both would go to the same terminal."""

    def __init__(self, stats: Any) -> None:
        self.stats = stats
        self.live = is_read_by_people(err=True) and not is_read_by_people()
        self.shown = 0.0

    def step(self, step: Any) -> None:
        click.echo(step.text, nl=False)
        if self.live and time.monotonic() - self.shown > LIVE_EVERY:
            self.shown = time.monotonic()
            click.echo(f"\r\x1b[K{_speed(self.stats.as_dict())}", nl=False, err=True)

    def end(self, figures: dict[str, Any]) -> None:
        click.echo()
        cache = f"cache {figures['kv']} {figures['cache_bytes'] / 1e6:.2f} MB"
        reason = figures["finish_reason"]
        end = {"stop": "stopped", "length": "at the limit"}.get(reason, reason)
        syncs = f"{figures['syncs_per_step']:.2f} synchronisations a step"
        head = "\r\x1b[K" if self.live else ""
        click.echo(f"{head}{_speed(figures)}, {syncs}, {cache}, {end}", err=True)
        if figures["agreement"]:
            from engine.models.agreement import Agreement

            click.echo(Agreement(**figures["agreement"]), err=True)


def _speed(figures: dict[str, Any]) -> str:
    summary = f"{figures['tokens']} tokens"
    if figures["tokens_per_second"]:
        summary += f", {figures['tokens_per_second']:.1f} tok/s"
    if figures["tau"]:
        summary += f", {figures['tau']:.2f} tokens a verify step"
        summary += f", {figures['acceptance']:.0%} of drafts accepted"
    return summary
