"""Compiles a client's grammar in a process of its own, under limits, before the server does.

llguidance limits the cost of most grammars, but not of all: a ``multipleOf`` with a large number takes minutes and
gigabytes, and some numbers end the process. So another process first compiles the same text, for a vocabulary of the
same size. The server compiles a text only after this process did so within its limits and found no error: compiling
then costs the server about as much.
"""

import json
import os
import resource
import sys
from dataclasses import dataclass
from threading import Event, Thread

import llguidance

from bridge.common import process

CPU_SECONDS = 2  # including the interpreter, which takes a tenth of a second
MEMORY = 192 << 20  # bytes, including the interpreter's
WALL_SECONDS = 60.0  # on a machine that is busy with other things
BYTES = 256  # tokens of one byte; the next one ends a text, and the others are only numbers


@dataclass(frozen=True)
class Outcome:
    """How a grammar was compiled."""

    nbytes: int  # of memory that it took
    error: str  # why the grammar cannot be used; empty if it can


def limits() -> llguidance.LLParserLimits:
    """Return llguidance's limits for a grammar. A mask takes at most some 10 ms with them."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=200_000, step_lexer_fuel=100_000, max_lexer_states=50_000
    )


def outcome(grammar: str, vocabulary: int, cancelled: Event | None = None) -> Outcome | None:
    """Compile a grammar for ``vocabulary`` tokens; None if it exceeds the limits, cannot be tried or is ``cancelled``.

    Blocks for at most ``WALL_SECONDS``.
    """
    argv = (sys.executable, "-P", "-m", __name__, str(vocabulary))
    printed = process.answer(*argv, text=grammar, timeout=WALL_SECONDS, cancelled=cancelled)
    try:
        return Outcome(**json.loads(printed or ""))
    except (ValueError, TypeError):
        return None


class _Tokens:
    """A vocabulary of bytes: what compiling costs does not depend on the texts of further tokens."""

    eos_token_id, bos_token_id, unk_token_id = BYTES, None, None
    special_token_ids = (BYTES,)

    def __init__(self, vocabulary: int) -> None:
        more = max(0, vocabulary - BYTES - 1)
        self.tokens = (*(bytes([i]) for i in range(BYTES)), b"<end>", *([b""] * more))

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def main() -> None:
    """Compile the grammar on standard input for as many tokens as the argument says."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    grammar = sys.stdin.buffer.read().decode()
    # Compile in a thread, as the server does: a thread's stack can be smaller than the main thread's.
    compiling = Thread(target=_compile, args=(grammar, int(sys.argv[1])))
    compiling.start()
    compiling.join()


def _compile(grammar: str, vocabulary: int) -> None:
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Tokens(vocabulary)))
    before = _most_memory()
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
    error = ""
    if matcher.is_error():  # validation gives a better message
        _, messages = matcher.validate_grammar_with_warnings(grammar, tokenizer, limits=limits())
        error = " ".join(messages or [matcher.get_error()]) or "it is invalid"
    else:
        matcher.compute_bitmask()
        if matcher.is_error():
            error = matcher.get_error()
        elif matcher.is_accepting() or matcher.is_stopped():  # at once: the empty text is not JSON
            error = "no JSON satisfies it"
    sys.stdout.write(json.dumps({"nbytes": _most_memory() - before, "error": error}))


def _most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
