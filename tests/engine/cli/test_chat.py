"""``kakeya-engine chat`` in a real terminal, and in a pipe."""

import io
import re
import signal
import subprocess
import sys
import time

import pytest

from engine import cli
from engine.cli.chat.screen import SPELLED
from engine.models import registry
from tests.engine.cli.terminal import CTRL_C, CTRL_D, ENTER, PROMPT, Terminal

PASTE = "\x1b[200~{}\x1b[201~"
QUESTION = "Count from 1 to 5."
SMOLLM2 = registry.fetched("smollm2-135m")  # before a test has a home of its own
LONG = ("--model", "tiny", "--max-tokens", "3000")  # never ends by itself


@pytest.fixture(params=["prompt_toolkit", pytest.param("input", marks=pytest.mark.long)])
def editor(request, tmp_path):
    """The environment in which the line editor is there, or not."""
    if request.param == "prompt_toolkit":
        pytest.importorskip("prompt_toolkit")
        return {}
    (tmp_path / "prompt_toolkit.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": str(tmp_path)}


def chatting(*argv, **env):
    return Terminal("chat", "--seed", "1", "--temperature", "0", *argv, **env)


def ask(terminal, text, until=PROMPT):
    terminal.type(text + ENTER)
    return terminal.until(until)


def used(terminal):
    """Return how many tokens of the context the conversation takes."""
    return int(re.search(r"context  (\d+) of 4096 tokens used", ask(terminal, "/stats"))[1])


def piped(text, *argv, **options):
    argv = [sys.executable, "-P", "-m", "engine", "chat", "--temperature", "0", *argv]
    done = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_conversation(editor):
    with chatting(**editor) as terminal:
        assert "tiny-chat, 4096 tokens of context. /help lists the commands" in terminal.until(PROMPT)
        assert "There is no answer yet." in ask(terminal, "/stats")
        assert "1, 2, 3, 4, 5" in ask(terminal, QUESTION)
        first = used(terminal)
        assert "1, 2, 3, 4, 5" in ask(terminal, QUESTION)
        assert used(terminal) > first + 10
        assert "is forgotten" in ask(terminal, "/clear")
        ask(terminal, QUESTION)
        assert used(terminal) == first
        assert "Ctrl-C  cancel the answer" in ask(terminal, "/help")
        assert "There is no command /foo; /help lists them." in ask(terminal, "/foo")
        assert "/clear takes no words after it." in ask(terminal, "/clear all")
        assert used(terminal) == first
        # As from a paste in a terminal that does not mark pastes: a colour is no event of the mouse.
        assert "Unhandled exception" not in ask(terminal, "\x1b[31mCount\x1b[0m from 1 to 5.")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        assert terminal.is_restored


@pytest.mark.long
def test_ctrl_c_cancels_the_answer_and_not_the_program(editor):
    with chatting(*LONG, **editor) as terminal:
        terminal.until(PROMPT)
        for _ in range(2):
            terminal.type("def main(argv):" + ENTER)
            terminal.until("\n")
            terminal.until("\n")  # the answer has begun
            terminal.type(CTRL_C)
            terminal.until("Cancelled.", 20)
            terminal.until(PROMPT)
        terminal.type("half a message")
        terminal.until("half a message")  # readline misses a Ctrl-C between its prompt and its first wait
        terminal.type(CTRL_C)
        terminal.until("Ctrl-D or /exit ends the chat.")
        terminal.until(PROMPT)
        terminal.type("/exit" + ENTER)
        assert terminal.ended() == 0
        assert terminal.is_restored


@pytest.mark.long
def test_a_paste_of_several_lines_is_one_message(editor):
    with chatting(columns=20, **editor) as terminal:
        terminal.until(PROMPT)
        terminal.type(PASTE.format("Repeat after me:\rgreen äöü 👩‍👧 apples"))
        terminal.type(ENTER)
        terminal.until(PROMPT)
        assert "There is no answer" not in ask(terminal, "/stats")
        one = used(terminal)
        ask(terminal, "/clear")
        ask(terminal, '"""Repeat after me:')
        ask(terminal, 'green äöü 👩‍👧 apples"""')
        assert used(terminal) == one
        terminal.type("/bye" + ENTER)
        assert terminal.ended() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("editor", "when"),
    [
        ("prompt_toolkit", "loading"),
        ("prompt_toolkit", "reading"),
        ("prompt_toolkit", "answering"),
        ("input", "reading"),
    ],
    indirect=["editor"],
)
def test_sigterm_ends_it_and_gives_the_terminal_back(editor, when):
    with chatting(*LONG, **editor) as terminal:
        terminal.until("loading" if when == "loading" else PROMPT)
        if when == "answering":
            terminal.type("def main(argv):" + ENTER)
            terminal.until("\n")
            terminal.until("\n")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended(20) == 128 + signal.SIGTERM
        assert terminal.is_restored
        assert "Traceback" not in terminal.raw


@pytest.mark.long
def test_the_end_of_input_during_an_answer_ends_the_chat_after_it(editor):
    with chatting("--model", "tiny", "--max-tokens", "60", **editor) as terminal:
        terminal.until(PROMPT)
        terminal.type("def main(argv):" + ENTER + CTRL_D)
        assert terminal.ended() == 0
        assert "The answer was cut at 60 tokens (--max-tokens)." in terminal.shown


@pytest.mark.long
def test_a_closed_terminal_ends_it():
    with chatting(*LONG) as terminal:
        terminal.until(PROMPT)
        terminal.type("def main(argv):" + ENTER)
        terminal.until("\n")
        terminal.hang_up()
        assert terminal.process.wait(20) != 0


@pytest.mark.long
def test_a_full_context_is_said():
    with chatting("--model", "tiny") as terminal:
        terminal.until(PROMPT)
        terminal.type("def main(argv):" + ENTER)
        terminal.until("The context of 4096 tokens is full. /clear begins a new conversation.")
        terminal.until(PROMPT)
        assert "so it was not sent. /clear begins" in " ".join(ask(terminal, "more").split())
        ask(terminal, "/clear")
        terminal.type("def main(argv):" + ENTER)
        terminal.until("\n")
        terminal.until("\n")  # the answer has begun
        terminal.type(CTRL_C)
        terminal.until("Cancelled.", 20)
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0


@pytest.mark.long
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="needs SmolLM2: kakeya-engine models get")
def test_a_real_model_knows_what_was_said_until_it_is_cleared():
    with chatting("--model", str(SMOLLM2), "--max-tokens", "40") as terminal:
        terminal.until(PROMPT)
        ask(terminal, "My name is Zora. Say hello to me.")
        assert "Zora" in ask(terminal, "What is my name?").partition("name?\n")[2]
        ask(terminal, "/clear")
        assert "Zora" not in ask(terminal, "What is my name?")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0


@pytest.mark.long
def test_answers_that_go_to_a_file_are_alone_in_it(tmp_path):
    with (tmp_path / "answers").open("wb") as file, chatting(stdout=file) as terminal:
        terminal.until(">>> ")
        ask(terminal, QUESTION, ">>> ")
        ask(terminal, "/stats", ">>> ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert (tmp_path / "answers").read_text() == "1, 2, 3, 4, 5\n"


def test_an_answer_controls_no_terminal_and_keeps_its_emoji():
    steering, plain = "\x1b]52;c;x\x07\x9b2J\r\u202e\u2028", "déjà\tvu 👩\u200d👧 ❤\ufe0f\n"
    assert (steering + plain).translate(SPELLED) == r"\x1b]52;c;x\x07\x9b2J\r\u202e\u2028" + plain


@pytest.mark.long
def test_a_pipe_is_one_message():
    code, out, err = piped("Count from 1 to 5.\n")
    assert (code, out) == (0, "1, 2, 3, 4, 5\n")
    assert err == "(thinking)\nI count from 1 to 5.\n(answer)\n"
    assert piped(QUESTION, "--no-think")[1:] == ("1, 2, 3, 4, 5\n", "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "argv", "code", "said"),
    [
        (" \n", (), 2, "standard input is empty"),
        ("hi", ("--model", "no-such-model"), 2, "there is no folder no-such-model"),
        ("hi", ("--model", "tiny-chat", "--draft", "/no/such"), 2, "there is no folder /no/such"),
        ("hi", ("--cache", "zip"), 2, "no cache spec"),
        ("def f(x):", ("--model", "tiny", "--max-tokens", "4"), 0, "The answer was cut at 4 tokens"),
    ],
)
def test_what_a_pipe_may_come_to(text, argv, code, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    with pytest.raises(SystemExit) as ended:
        cli.main(["chat", "--temperature", "0", *argv])
    err = capsys.readouterr().err
    assert (ended.value.code or 0) == code, err
    assert said in err


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "argv", "code", "said"),
    [
        ("hi", ("--model", "qwen3-8b"), 3, "the hub is out of reach"),
        ("word " * 6000, (), 2, "The prompt is too long"),
    ],
)
def test_what_huggingface_says_of_a_pipe_is_not_shown(text, argv, code, said, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ended, _, err = piped(text, *argv)
    assert ended == code, err
    assert said in err
    assert "Traceback" not in err
    assert "indexing errors" not in err  # transformers' own remark


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [("chat", "<&-", 2), ("generate", "<&-", 2), ("chat", ">&-", 0), ("generate", ">&-", 0)],
)
def test_a_closed_input_or_output_is_no_bug(command, closed, code):
    line = f"echo hi | {{ {sys.executable} -P -m engine {command} {closed}; }}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert ("standard input is closed" in done.stderr) == (code == 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({}, "\x1b[2mI count from 1 to 5.\r\n\x1b[22m1, 2, 3, 4, 5\r\n"),
        ({"NO_COLOR": "1"}, "(thinking)\r\nI count from 1 to 5.\r\n(answer)\r\n1, 2, 3, 4, 5\r\n"),
    ],
)
def test_thoughts_are_apart_from_the_answer(env, shown):
    with chatting(**env) as terminal:
        terminal.until(PROMPT)
        ask(terminal, QUESTION)
        assert shown in terminal.raw
        terminal.type(CTRL_D)
        assert terminal.ended() == 0


@pytest.mark.long
def test_a_closed_pipe_ends_it_like_other_programs():
    argv = [sys.executable, "-P", "-m", "engine", "chat", *LONG]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"def main(argv):")
        process.stdin.close()
        assert process.stdout.read(1)
        began = time.monotonic()
        process.stdout.close()
        assert process.wait(60) == 141
        assert time.monotonic() - began < 30
        assert process.stderr.read() == b""
