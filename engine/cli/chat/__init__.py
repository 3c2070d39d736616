"""``kakeya-engine chat``: a conversation in the terminal."""

from typing import Any

import click

from bridge.common.cli.commands import REFERENCE, Number, option
from engine.cli import prompts
from engine.cli.serve import BACKENDS
from engine.cli.types import CACHE_SPEC, DTYPES

HELP = '''/clear  forget the conversation; the system message stays
/stats  show figures of the last answer, and how much of the context is used
/help   show this list
/exit   end the chat, like Ctrl-D; also /quit and /bye
"""     begin and end a message of several lines; pasted lines are one message{editor}
Ctrl-C  cancel the answer; what was written of it stays in the conversation'''
ENDINGS = ("/exit", "/quit", "/bye")
KNOWN = (*ENDINGS, "/clear", "/stats", "/help")
SECOND_LINE = "; Alt-Enter begins a new line"


@click.command()
@option("--model name", REFERENCE, "tiny-chat", metavar="REF", help="A name, a folder or a hub id.")
@option("--system", help="System message of the conversation.")
@option(
    "--draft", REFERENCE, "auto", metavar="auto|none|lookup|dflash|eagle3|mtp|REF", help="Drafter, as in `serve`.",
)  # fmt: skip
@option("--cache", CACHE_SPEC, "raw", help="Cache spec: raw, e8v@4.25, affine@4g64, ...")
@option(
    "--dtype", click.Choice(DTYPES), help="Type to compute in.  [default: float32 on the CPU, else as stored]"
)
@option("--backend", click.Choice(BACKENDS), help="Engine, as in `serve`.")
@option("--max-tokens", click.IntRange(1, 1 << 20), 8192, help="Maximum tokens of an answer.")
@option(
    "--temperature", Number(0, 2), show_default="the model's own, else 0.7",
    help="Sampling temperature; 0 is greedy.",
)  # fmt: skip
@option(
    "--top-p", Number(0, 1, min_open=True), show_default="the model's own, else all",
    help="Sample from the likeliest tokens with this probability together.",
)  # fmt: skip
@option("--seed", click.IntRange(0, 2**63 - 1), help="Seed that makes sampling repeatable.")
@click.option(
    "--think/--no-think", default=None, help="Whether the model shall think first, if it can choose."
)
def command(*, name: str, system: str | None, think: bool | None, **options: Any) -> None:
    """Chat with a model in the terminal.

    Ctrl-C cancels an answer, Ctrl-D ends the chat, and /help lists its commands. If standard input is no terminal,
    all of it is one message: the answer is printed, and the chat ends.

    Answers go to standard output; everything else, such as thoughts if that is no terminal, to standard error. Nothing
    is written to disk. The package prompt_toolkit, of the extra "chat", adds a line editor.
    """
    message = None
    if prompts.is_typed():
        from engine.cli.chat import ending

        ending.give_back_on_sigterm()
    elif not (message := prompts.from_stdin().strip()):
        raise click.UsageError(
            "standard input is empty: write a message to it, or start the chat in a terminal"
        )
    from engine.cli.chat.conversation import Conversation, opened

    fields = {key: options.pop(key) for key in ("max_tokens", "temperature", "top_p", "seed")}
    fields |= {} if think is None else {"chat_template_kwargs": {"enable_thinking": think}}
    with opened(name, **options) as served:
        conversation = Conversation(served, system, fields)
        if message is not None:
            conversation.answer_once(message)
        else:
            _talk(conversation)


def _talk(conversation: Any) -> None:
    """Answer messages until the user ends the chat."""
    from engine.cli.chat import editor, screen

    read, edits = editor.reader()
    screen.note(f"{conversation.about}. /help lists the commands; Ctrl-D ends the chat.")
    while True:
        try:
            text = editor.message(read)
        except KeyboardInterrupt:
            screen.note("Ctrl-D or /exit ends the chat.")
            continue
        except EOFError:
            break
        if text in ENDINGS:
            break
        if (reply := _obeyed(text, conversation, edits=edits)) is not None:
            screen.note(reply)
        elif text:
            conversation.answer(text)


def _obeyed(text: str, conversation: Any, *, edits: bool) -> str | None:
    """Obey a command and return what to say about it; None if the text is a message for the model."""
    from engine.cli.chat import editor

    word = text.partition(" ")[0]
    if text == "/clear":
        conversation.clear()
        return "The conversation is forgotten."
    if text == "/stats":
        return str(conversation.stats())
    if text == "/help":
        return HELP.format(editor=SECOND_LINE if edits else "")
    if word in KNOWN:
        return f"{word} takes no words after it."
    return f"There is no command {text}; /help lists them." if editor.is_command(text) else None
